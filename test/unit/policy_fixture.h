// What the policy tests share: a small JSON reader that fills a Document as jsonb does on the server, and the validator
// run on it with everything it needs.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "policy/document.h"
#include "policy/policy.h"
#include "policy/validator.h"

namespace sluice::policy::test {

// Reads JSON text into a document; line numbers are those of the text. Good enough for texts the tests themselves hold.
class JsonReader {
 public:
  JsonReader(Document& document, const std::string& text) : document_(document), text_(text) { document_.clear(); }

  // False when the document refused a part of it.
  bool read() {
    bool ok = value();
    skip_blanks();
    if (at_ != text_.size()) ADD_FAILURE() << "test JSON: left over at byte " << at_ << ": " << text_.substr(at_);
    return ok && document_.complete();
  }

 private:
  void skip_blanks() {
    for (; at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr; at_++) line_ += text_[at_] == '\n';
  }

  char next() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::string string() {
    std::string result;
    for (at_++; at_ < text_.size() && text_[at_] != '"'; at_++) {
      if (text_[at_] != '\\') {
        result += text_[at_];
        continue;
      }
      char c = text_[++at_];
      if (c == 'u') {
        result += static_cast<char>(std::strtol(text_.substr(at_ + 1, 4).c_str(), nullptr, 16));
        at_ += 4;
      } else {
        result += c == 'n' ? '\n' : c == 't' ? '\t' : c;
      }
    }
    at_++;
    return result;
  }

  bool members(char close, bool keyed) {
    Status status = keyed ? document_.begin_object(line_) : document_.begin_array(line_);
    bool ok = status == Status::ok;
    at_++;
    while (next() != close && next() != '\0') {
      if (keyed) {
        std::string name = string();
        ok = document_.key(name.data(), name.size()) == Status::ok && ok;
        if (next() != ':') ADD_FAILURE() << "test JSON: no ':' behind " << name;
        at_++;
      }
      ok = value() && ok;
      if (next() == ',') at_++;
    }
    at_++;
    return document_.end() == Status::ok && ok;
  }

  bool value() {
    char first = next();
    if (first == '{') return members('}', true);
    if (first == '[') return members(']', false);
    std::uint32_t line = line_;
    if (first == '"') {
      std::string content = string();
      return document_.add_string(content.data(), content.size(), line) == Status::ok;
    }
    std::size_t start = at_;
    while (at_ < text_.size() && std::strchr(",]} \t\r\n", text_[at_]) == nullptr) at_++;
    std::string word = text_.substr(start, at_ - start);
    if (word == "null") return document_.add_null(line) == Status::ok;
    if (word == "true" || word == "false") return document_.add_boolean(word == "true", line) == Status::ok;
    return document_.add_number(word.data(), word.size(), line) == Status::ok;
  }

  Document& document_;
  const std::string& text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
};

inline ServerFacts server(std::uint32_t max_connections, const char* label = "orders-primary") {
  ServerFacts facts{};
  facts.known = true;
  facts.max_connections = max_connections;
  facts.superuser_reserved_connections = 3;
  facts.max_wal_senders = 10;
  std::strncpy(facts.label, label, sizeof(facts.label) - 1);
  return facts;
}

inline ServerFacts no_server() { return ServerFacts{}; }

// One run of the validator over a JSON text.
struct Checked {
  std::unique_ptr<Document> document = std::make_unique<Document>();
  std::unique_ptr<Policy> policy = std::make_unique<Policy>();
  std::unique_ptr<Findings> findings = std::make_unique<Findings>();
  bool valid = false;

  explicit Checked(const std::string& json, const ServerFacts& facts = no_server()) {
    (void)JsonReader(*document, json).read();
    valid = validate(*document, facts, *policy, *findings);
  }

  // The first finding at a path with this severity, or nullptr.
  const Finding* find(Severity severity, const std::string& path) const {
    for (std::uint32_t i = 0; i < findings->count; i++) {
      const Finding& finding = findings->entries[i];
      if (finding.severity == severity && path == finding.path) return &finding;
    }
    return nullptr;
  }

  const Finding* error(const std::string& path) const { return find(Severity::error, path); }
  const Finding* warning(const std::string& path) const { return find(Severity::warning, path); }

  std::string all() const {
    std::string text;
    for (std::uint32_t i = 0; i < findings->count; i++) {
      const Finding& finding = findings->entries[i];
      text += finding.severity == Severity::error ? "error: " : "warning: ";
      text += std::string(finding.path) + ": " + finding.message + " | " + finding.fix + "\n";
    }
    return text;
  }
};

// The document's required part, with `more` (fields that end in a comma, or nothing) in front.
inline std::string minimal(const std::string& more = "") {
  return "{" + more +
         R"("schema": "dbAdmissionPolicy.v1", "database": "orders-primary/write", "serverSessionPermits": 100,
           "adminRoles": {"dba": {}},
           "executionClasses": {"interactive": {"permits": 60, "maxQueue": 100}}})";
}

// A document with one class and these fields of it.
inline std::string with_classes(const std::string& classes, const std::string& more = "") {
  return "{" + more +
         R"("schema": "dbAdmissionPolicy.v1", "database": "orders-primary/write", "serverSessionPermits": 100,
           "adminRoles": {"dba": {}}, "executionClasses": {)" +
         classes + "}}";
}

inline testing::AssertionResult has_error(const Checked& run, const std::string& path, const std::string& part) {
  if (run.valid) return testing::AssertionFailure() << "the document was accepted";
  const Finding* finding = run.error(path);
  if (finding == nullptr) return testing::AssertionFailure() << "no error at " << path << "; findings:\n" << run.all();
  if (std::string(finding->message).find(part) == std::string::npos) {
    return testing::AssertionFailure() << "at " << path << " stands: " << finding->message;
  }
  return testing::AssertionSuccess();
}

inline testing::AssertionResult has_warning(const Checked& run, const std::string& path, const std::string& part) {
  if (!run.valid) return testing::AssertionFailure() << "the document was refused:\n" << run.all();
  const Finding* finding = run.warning(path);
  if (finding == nullptr)
    return testing::AssertionFailure() << "no warning at " << path << "; findings:\n" << run.all();
  if (std::string(finding->message).find(part) == std::string::npos) {
    return testing::AssertionFailure() << "at " << path << " stands: " << finding->message;
  }
  return testing::AssertionSuccess();
}

}  // namespace sluice::policy::test
