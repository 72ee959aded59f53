#include "policy/document.h"

#include <gtest/gtest.h>

#include <string>

#include "unit/policy_fixture.h"

namespace sluice::policy {
namespace {

class PolicyDocument : public testing::Test {
 protected:
  std::unique_ptr<Document> document = std::make_unique<Document>();

  void SetUp() override { document->clear(); }

  Status key(const char* text) { return document->key(text, std::strlen(text)); }
  Status add(const char* text, std::uint32_t line = 0) { return document->add_string(text, std::strlen(text), line); }

  // A one-number document.
  const Node& number(const std::string& text) {
    document->clear();
    EXPECT_EQ(document->add_number(text.data(), text.size()), Status::ok);
    return document->node(document->root());
  }
};

TEST_F(PolicyDocument, KeepsMembersInOrderWithKeysAndLines) {
  ASSERT_TRUE(test::JsonReader(*document, "{\"a\": 1,\n \"b\": [true, null],\n \"c\": {\"d\": \"x\"}}").read());
  const Node& root = document->node(document->root());
  EXPECT_EQ(root.kind, NodeKind::object);
  const Node& a = document->node(root.first_child);
  EXPECT_STREQ(document->text(a.key), "a");
  EXPECT_EQ(a.integer, 1);
  const Node& b = document->node(a.next);
  EXPECT_EQ(b.kind, NodeKind::array);
  EXPECT_EQ(b.line, 2U);
  EXPECT_TRUE(document->node(b.first_child).flag);
  EXPECT_EQ(document->node(document->node(b.first_child).next).kind, NodeKind::null);
  std::uint32_t c = document->find(document->root(), "c");
  std::uint32_t d = document->find(c, "d");
  ASSERT_NE(d, kNoNode);
  EXPECT_STREQ(document->text(document->node(d).text), "x");
  EXPECT_EQ(document->node(d).line, 3U);
  EXPECT_EQ(document->find(document->root(), "d"), kNoNode);
  EXPECT_EQ(document->find(kNoNode, "a"), kNoNode);
}

TEST_F(PolicyDocument, AnEmptyDocumentHasNoRootAndIsNotComplete) {
  EXPECT_EQ(document->root(), kNoNode);
  EXPECT_FALSE(document->complete());
}

TEST_F(PolicyDocument, IsCompleteOnlyOnceEverythingIsClosed) {
  ASSERT_EQ(document->begin_object(), Status::ok);
  EXPECT_FALSE(document->complete());
  ASSERT_EQ(document->end(), Status::ok);
  EXPECT_TRUE(document->complete());
}

TEST_F(PolicyDocument, WholeNumbersAreExactAndEverythingElseIsNot) {
  EXPECT_EQ(number("0").integer, 0);
  EXPECT_EQ(number("-17").integer, -17);
  EXPECT_EQ(number("9223372036854775807").integer, 9223372036854775807LL);
  EXPECT_TRUE(number("9223372036854775807").is_integer);
  EXPECT_TRUE(number("27.00").is_integer);
  EXPECT_EQ(number("27.00").integer, 27);
  for (const char* text : {"9223372036854775808", "-9223372036854775808", "99999999999999999999999", "1.5", "1e3", "1.",
                           ".5", "-", "", "12a", "0x10", " 1"}) {
    EXPECT_FALSE(number(text).is_integer) << text;
  }
  EXPECT_STREQ(document->text(number("1.5").text), "1.5");
}

TEST_F(PolicyDocument, ANulInsideATextIsKeptVisible) {
  ASSERT_EQ(document->add_string("a\0b", 3), Status::ok);
  const char* text = document->text(document->node(0).text);
  EXPECT_EQ(std::strlen(text), 3U);
  EXPECT_EQ(text[1], '\1');
}

TEST_F(PolicyDocument, RefusesCallsOutOfPlaceAndStaysRefused) {
  ASSERT_EQ(document->begin_object(), Status::ok);
  EXPECT_EQ(add("value without key"), Status::table_full);
  EXPECT_EQ(key("a"), Status::table_full);
  EXPECT_EQ(document->end(), Status::table_full);
  EXPECT_FALSE(document->complete());

  document->clear();
  EXPECT_EQ(key("key without object"), Status::table_full);

  document->clear();
  ASSERT_EQ(document->begin_array(), Status::ok);
  EXPECT_EQ(key("key in an array"), Status::table_full);

  document->clear();
  ASSERT_EQ(document->begin_object(), Status::ok);
  ASSERT_EQ(key("a"), Status::ok);
  EXPECT_EQ(document->end(), Status::table_full) << "a key without a value";

  document->clear();
  ASSERT_EQ(add("root"), Status::ok);
  EXPECT_EQ(add("second root"), Status::table_full);
  EXPECT_FALSE(document->complete());

  document->clear();
  EXPECT_EQ(document->end(), Status::table_full);
}

TEST_F(PolicyDocument, DepthIsBounded) {
  for (std::uint32_t i = 0; i < kMaxDepth; i++) ASSERT_EQ(document->begin_array(), Status::ok) << i;
  EXPECT_EQ(document->begin_array(), Status::table_full);
  EXPECT_EQ(document->end(), Status::table_full);
}

TEST_F(PolicyDocument, NodesAreBounded) {
  ASSERT_EQ(document->begin_array(), Status::ok);
  for (std::uint32_t i = 1; i < kMaxNodes; i++) ASSERT_EQ(document->add_null(), Status::ok) << i;
  EXPECT_EQ(document->add_null(), Status::table_full);
  EXPECT_EQ(document->end(), Status::table_full);
  EXPECT_FALSE(document->complete());
}

TEST_F(PolicyDocument, TextIsBounded) {
  std::string half(kMaxTextBytes / 2, 'x');
  ASSERT_EQ(document->begin_array(), Status::ok);
  ASSERT_EQ(document->add_string(half.data(), half.size()), Status::ok);
  EXPECT_EQ(document->add_string(half.data(), half.size()), Status::table_full);
  EXPECT_EQ(document->add_null(), Status::table_full);
}

TEST_F(PolicyDocument, ClearStartsAgain) {
  ASSERT_EQ(document->begin_object(), Status::ok);
  (void)add("misplaced");
  document->clear();
  EXPECT_EQ(add("x"), Status::ok);
  EXPECT_TRUE(document->complete());
}

}  // namespace
}  // namespace sluice::policy
