#include "cli/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <vector>

#include "cli/text_file.h"

namespace sluice::cli {
namespace {

using policy::Status;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// RFC 8259: -? (0 | [1-9] digits) (. digits)? ([eE] [+-]? digits)?
bool is_json_number(const std::string& text) {
  std::size_t at = 0;
  auto digits = [&] {
    std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) at++;
    return at > first;
  };
  if (at < text.size() && text[at] == '-') at++;
  std::size_t first = at;
  if (!digits() || (text[first] == '0' && at - first > 1)) return false;
  if (at < text.size() && text[at] == '.') {
    at++;
    if (!digits()) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    at++;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) at++;
    if (!digits()) return false;
  }
  return at == text.size();
}

bool is_true(const std::string& text) { return text == "true" || text == "True" || text == "TRUE"; }
bool is_false(const std::string& text) { return text == "false" || text == "False" || text == "FALSE"; }

// Turns the parser's events into calls of the document's builder.
class DocumentBuilder : public YAML::EventHandler {
 public:
  explicit DocumentBuilder(policy::Document& document) : document_(document) { document_.clear(); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw TextError(line_of(mark), "a second document starts here", "keep one policy in one file");
    }
  }

  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (expects_key()) refuse_key(mark, "is empty (null)");
    check(document_.add_null(value_line(mark)), mark);
    value_done();
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw TextError(line_of(mark), "an alias (*name) is not supported", "write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    bool plain = tag == "?";
    if (expects_key()) return take_key(mark, value, plain);
    std::uint32_t line = value_line(mark);
    if (plain && (is_true(value) || is_false(value))) {
      check(document_.add_boolean(is_true(value), line), mark);
    } else if (plain && is_json_number(value)) {
      check(document_.add_number(value.data(), value.size(), line), mark);
    } else {
      check(document_.add_string(value.data(), value.size(), line), mark);
    }
    value_done();
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    check(document_.begin_array(begin(mark, tag, anchor, false)), mark);
  }

  void OnSequenceEnd() override { end(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    check(document_.begin_object(begin(mark, tag, anchor, true)), mark);
  }

  void OnMapEnd() override { end(); }

 private:
  // An open map or list. A map takes a key and a value in turn.
  struct Level {
    bool map;
    bool key_taken;
  };

  static std::uint32_t line_of(const YAML::Mark& mark) {
    return mark.is_null() ? 0 : static_cast<std::uint32_t>(mark.line) + 1;
  }

  bool expects_key() const { return !levels_.empty() && levels_.back().map && !levels_.back().key_taken; }

  std::uint32_t value_line(const YAML::Mark& mark) const { return pending_line_ > 0 ? pending_line_ : line_of(mark); }

  void take_key(const YAML::Mark& mark, const std::string& key, bool plain) {
    if (plain && key == "<<") {
      throw TextError(line_of(mark), "a merge key (<<) is not supported", "write the fields out");
    }
    if (plain && (is_true(key) || is_false(key) || is_json_number(key))) {
      refuse_key(mark, "is not text: " + key);
    }
    check(document_.key(key.data(), key.size()), mark);
    levels_.back().key_taken = true;
    pending_line_ = line_of(mark);
  }

  void value_done() {
    pending_line_ = 0;
    if (!levels_.empty()) levels_.back().key_taken = false;
  }

  // Opens a level and answers the line of its value; what stands inside has lines of its own.
  std::uint32_t begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, bool map) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) refuse_key(mark, map ? "is a group of fields" : "is a list");
    std::uint32_t line = value_line(mark);
    pending_line_ = 0;
    levels_.push_back({map, false});
    return line;
  }

  void end() {
    levels_.pop_back();
    if (document_.end() != Status::ok) throw TextError(0, "the document is too large");
    value_done();
  }

  [[noreturn]] static void refuse_key(const YAML::Mark& mark, const std::string& what) {
    throw TextError(line_of(mark), "a field name " + what, "names are text: put it in quotes");
  }

  static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor == 0) return;
    throw TextError(line_of(mark), "an anchor (&name) is not supported",
                    "remove it and write the value out where it is used");
  }

  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw TextError(line_of(mark), "a tag (" + tag + ") is not supported", "remove it; put text in quotes");
  }

  static void check(Status status, const YAML::Mark& mark) {
    if (status == Status::ok) return;
    throw TextError(line_of(mark),
                    "the document becomes too large here: at most " + std::to_string(policy::kMaxNodes) + " values, " +
                        std::to_string(policy::kMaxTextBytes) + " bytes of text and " +
                        std::to_string(policy::kMaxDepth) + " levels",
                    "use patterns for tenants and roles instead of one entry each");
  }

  policy::Document& document_;
  std::vector<Level> levels_;
  std::uint32_t pending_line_ = 0;  // line of the key whose value is next; 0: none
  int documents_ = 0;
};

}  // namespace

void read_yaml(const std::string& text, policy::Document& document) {
  check_text(text);
  DocumentBuilder builder(document);
  try {
    // yaml-cpp takes a quoted scalar that is never closed when a line break is the last it sees: a file cut off in the
    // middle would pass. Without line breaks at the end it is noticed.
    std::istringstream stream(text.substr(0, text.find_last_not_of(" \t\r\n") + 1));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) continue;
  } catch (const YAML::Exception& error) {
    std::uint32_t line = error.mark.is_null() ? 0 : static_cast<std::uint32_t>(error.mark.line) + 1;
    throw TextError(line, "not valid YAML: " + error.msg);
  }
  if (document.root() == policy::kNoNode)
    throw TextError(0, "the file is empty", "start from one of the files in config/");
  if (!document.complete()) throw TextError(0, "the document is incomplete");
}

}  // namespace sluice::cli
