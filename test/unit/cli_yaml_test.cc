#include "cli/yaml.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "cli/json.h"
#include "cli/text_file.h"

namespace sluice::cli {
namespace {

using policy::Document;
using policy::Node;
using policy::NodeKind;

class CliYaml : public testing::Test {
 protected:
  std::unique_ptr<Document> document = std::make_unique<Document>();

  std::string json(const std::string& yaml) {
    read_yaml(yaml, *document);
    return to_json(*document);
  }

  // "LINE: message" of the error the text gives, or "" when it is accepted.
  std::string error(const std::string& yaml) {
    try {
      read_yaml(yaml, *document);
    } catch (const TextError& error) {
      return std::to_string(error.line) + ": " + error.what();
    }
    return "";
  }

  std::uint32_t line_of(const char* key) {
    std::uint32_t index = document->find(document->root(), key);
    return index == policy::kNoNode ? 0 : document->node(index).line;
  }
};

TEST_F(CliYaml, PlainScalarsFollowTheJsonSchemaAndQuotedOnesAreText) {
  EXPECT_EQ(json("[1, -2, 0, 1.5, 1e3, 12345678901234567890]"), "[1, -2, 0, 1.5, 1e3, 12345678901234567890]");
  EXPECT_EQ(json("[true, True, FALSE, null, ~, Null]"), "[true, true, false, null, null, null]");
  EXPECT_EQ(json("['1', \"true\", 'null', '~']"), R"(["1", "true", "null", "~"])");
  EXPECT_EQ(json("[on, off, yes, no, On]"), R"(["on", "off", "yes", "no", "On"])");
}

TEST_F(CliYaml, WhatIsNoJsonNumberIsTextAndNotGuessedAt) {
  EXPECT_EQ(json("[007, 0x1F, 0o17, 1_000, +5, .5, 5., .inf, 1e, 12:30, 2026-01-01]"),
            R"(["007", "0x1F", "0o17", "1_000", "+5", ".5", "5.", ".inf", "1e", "12:30", "2026-01-01"])");
}

TEST_F(CliYaml, BlockAndFlowStyleMeanTheSame) {
  const char* expected = R"({"a": {"b": [1, {"c": "x"}]}, "d": []})";
  EXPECT_EQ(json("a:\n  b:\n    - 1\n    - c: x\nd: []\n"), expected);
  EXPECT_EQ(json("{a: {b: [1, {c: x}]}, d: []}"), expected);
  EXPECT_EQ(json(expected), expected) << "JSON is YAML";
}

TEST_F(CliYaml, LinesAreThoseOfTheKeys) {
  (void)json("# a comment\nfirst: 1\n\nsecond:\n  - x\nthird:\n  deep:\n    deeper: 1\n");
  EXPECT_EQ(line_of("first"), 2U);
  EXPECT_EQ(line_of("second"), 4U);
  EXPECT_EQ(line_of("third"), 6U);
  std::uint32_t deep = document->find(document->find(document->root(), "third"), "deep");
  EXPECT_EQ(document->node(deep).line, 7U);
  EXPECT_EQ(document->node(document->find(deep, "deeper")).line, 8U);
  std::uint32_t second = document->find(document->root(), "second");
  EXPECT_EQ(document->node(document->node(second).first_child).line, 5U) << "an entry of a list has its own line";
}

TEST_F(CliYaml, TextSurvivesEscapesAndUnicode) {
  EXPECT_EQ(json("\"a\\tb\\\"c\\\\d\": 'it''s'"), "{\"a\\u0009b\\\"c\\\\d\": \"it's\"}");
  EXPECT_EQ(json("x: Gr\xC3\xB6\xC3\x9F"
                 "e"),
            "{\"x\": \"Gr\xC3\xB6\xC3\x9F"
            "e\"}");
  EXPECT_EQ(json("x: \"a\\0b\""), "{\"x\": \"a\\u0001b\"}")
      << "a NUL stays a control character, which is refused later";
}

TEST_F(CliYaml, AnchorsAliasesMergeKeysAndTagsAreRefusedWithTheirLine) {
  EXPECT_EQ(error("a: 1\nb: &x 2\n"), "2: an anchor (&name) is not supported");
  EXPECT_EQ(error("a: 1\nb: &x {c: 1}\n"), "2: an anchor (&name) is not supported");
  EXPECT_EQ(error("a: 1\nb: &x [1]\n"), "2: an anchor (&name) is not supported");
  EXPECT_EQ(error("&x a: 1\n"), "1: an anchor (&name) is not supported");
  EXPECT_NE(error("a: 1\nb: *x\n"), "");
  EXPECT_EQ(error("a: 1\n<<: {b: 2}\n"), "2: a merge key (<<) is not supported");
  EXPECT_EQ(error("a: 1\nb: !!str 2\n"), "2: a tag (tag:yaml.org,2002:str) is not supported");
  EXPECT_EQ(error("a: 1\nb: !mine {c: 1}\n"), "2: a tag (!mine) is not supported");
  EXPECT_EQ(json("'<<': 1"), R"({"<<": 1})") << "quoted it is a name like any other";
}

TEST_F(CliYaml, KeysMustBeText) {
  EXPECT_EQ(error("a: 1\n27: x\n"), "2: a field name is not text: 27");
  EXPECT_EQ(error("a: 1\ntrue: x\n"), "2: a field name is not text: true");
  EXPECT_EQ(error("a: 1\n~: x\n"), "2: a field name is empty (null)");
  EXPECT_EQ(error("a: 1\n? {b: 1}\n: x\n"), "2: a field name is a group of fields");
  EXPECT_EQ(error("a: 1\n? [b]\n: x\n"), "2: a field name is a list");
  EXPECT_EQ(json("'27': x\non: y\n"), R"({"27": "x", "on": "y"})");
}

TEST_F(CliYaml, ASecondDocumentIsRefused) {
  EXPECT_EQ(error("a: 1\n---\nb: 2\n"), "2: a second document starts here");
  EXPECT_EQ(error("---\na: 1\n...\n---\nb: 2\n").substr(2), " a second document starts here");
  EXPECT_EQ(json("---\na: 1\n...\n"), R"({"a": 1})");
}

TEST_F(CliYaml, EmptyFilesAreRefused) {
  for (const char* text : {"", "\n\n", "# only a comment\n"}) EXPECT_EQ(error(text), "0: the file is empty") << text;
  EXPECT_EQ(json("---\n"), "null") << "an empty document: the validator refuses it as no group of fields";
}

TEST_F(CliYaml, BrokenYamlNamesTheLine) {
  EXPECT_EQ(error("a: 1\nb: [1, 2\nc: 3\n").substr(0, 17), "3: not valid YAML");
  EXPECT_EQ(error("a: b: c\n"), "1: not valid YAML: illegal map value");
  EXPECT_NE(error("a: 1\n\tb: 2\n"), "");
  EXPECT_NE(error("{a: 1}}"), "");
  EXPECT_NE(error("a: 1\n- b\n"), "");
}

TEST_F(CliYaml, AFileCutOffInsideAQuoteIsRefused) {
  for (const char* quote : {"\"", "'"}) {
    for (const char* end : {"", "\n", "\n\n", " \r\n", "\nc: 3\n", "\n# comment\n"}) {
      EXPECT_EQ(error(std::string("a: 1\nb: ") + quote + "open" + end).substr(2),
                " not valid YAML: illegal EOF in scalar")
          << quote << end;
    }
  }
}

TEST_F(CliYaml, WhatIsNoTextIsRefusedBeforeParsing) {
  EXPECT_EQ(error(std::string("a: 1\nb: \0", 9)), "2: byte 0x00 is not text");
  EXPECT_EQ(error("a: 1\nb: \x1B[31m"), "2: byte 0x1b is not text");
  EXPECT_EQ(error("a: 1\nb: \xFF"), "2: byte 0xff is not UTF-8");
}

TEST_F(CliYaml, DepthNodesAndTextAreBoundedWithALine) {
  std::string deep = "\n" + std::string(17, '[') + std::string(17, ']');
  EXPECT_EQ(error(deep).substr(0, 39), "2: the document becomes too large here:");
  EXPECT_NE(error(std::string(200000, '[')), "");
  std::string many;
  for (std::uint32_t i = 0; i < policy::kMaxNodes; i++) many += "- 1\n";
  EXPECT_EQ(error(many).substr(0, 42), "8192: the document becomes too large here:");
  EXPECT_NE(error("a: " + std::string(policy::kMaxTextBytes, 'x')).find("too large"), std::string::npos);
}

TEST_F(CliYaml, TheLargestAllowedDepthIsReadable) {
  std::string deep;
  for (int i = 0; i < 16; i++) deep += "[";
  for (int i = 0; i < 16; i++) deep += "]";
  EXPECT_EQ(json(deep), deep);
}

// Damaged input gives an error or a whole document, never a crash; sanitizer builds watch the parser too.
TEST_F(CliYaml, DamagedTextIsAnsweredWhole) {
  const std::string text =
      "schema: dbAdmissionPolicy.v1\ntenants:\n  \"*\": {weight: 1, maxInflight: 30}\nassign:\n  - {role: \"b_*\", "
      "class: x}\n";
  std::mt19937 random(99);
  const std::string bytes = "{}[]:,-?&*!|>'\"%@`#\n \tax1";
  int accepted = 0;
  for (int round = 0; round < 3000; round++) {
    std::string damaged = text;
    for (int i = 0; i < 3; i++) {
      std::size_t at = random() % damaged.size();
      if (random() % 2 == 0) {
        damaged[at] = bytes[random() % bytes.size()];
      } else {
        damaged.insert(at, 1, bytes[random() % bytes.size()]);
      }
    }
    if (error(damaged).empty()) {
      accepted++;
      EXPECT_TRUE(document->complete());
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_LT(accepted, 3000);
}

}  // namespace
}  // namespace sluice::cli
