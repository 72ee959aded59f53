#include "policy/validator_fields.h"

#include <cstring>

namespace sluice::policy {
namespace {

constexpr std::size_t kComparedBytes = 48;  // no field and no sensible class name is longer

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Levenshtein distance without regard to case, by the two-row method; names beyond kComparedBytes are never close.
std::uint32_t edit_distance(const char* a, const char* b) noexcept {
  std::size_t a_length = strnlen(a, kComparedBytes + 1);
  std::size_t b_length = strnlen(b, kComparedBytes + 1);
  if (a_length > kComparedBytes || b_length > kComparedBytes) return kComparedBytes;
  std::uint32_t row[kComparedBytes + 1];
  for (std::uint32_t j = 0; j <= b_length; j++) row[j] = j;
  for (std::size_t i = 1; i <= a_length; i++) {
    std::uint32_t diagonal = row[0];
    row[0] = static_cast<std::uint32_t>(i);
    for (std::size_t j = 1; j <= b_length; j++) {
      std::uint32_t replace = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      std::uint32_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = replace < shift ? replace : shift;
    }
  }
  return row[b_length];
}

void write_path(TextWriter& out, const Path* path) noexcept {
  if (path == nullptr || (path->parent == nullptr && path->name == nullptr)) return;
  write_path(out, path->parent);
  if (path->name == nullptr) {
    out.add("[").add(path->index).add("]");
    return;
  }
  if (out.length() > 0) out.add(".");
  out.add_path_name(path->name);
}

}  // namespace

FindingText Validation::add(Severity severity, std::uint32_t node, const Path& path) noexcept {
  if (severity == Severity::error) findings_.errors++;
  Finding* finding = &beyond_;
  if (findings_.count < kMaxFindings) {
    finding = &findings_.entries[findings_.count++];
  } else {
    findings_.dropped++;
  }
  finding->severity = severity;
  finding->line = node == kNoNode ? 0 : document.node(node).line;
  TextWriter path_text(finding->path, sizeof(finding->path));
  write_path(path_text, &path);
  return {TextWriter(finding->message, sizeof(finding->message)), TextWriter(finding->fix, sizeof(finding->fix))};
}

FindingText Validation::error(std::uint32_t node, const Path& path) noexcept {
  return add(Severity::error, node, path);
}

FindingText Validation::warning(std::uint32_t node, const Path& path) noexcept {
  return add(Severity::warning, node, path);
}

void Validation::add_found(TextWriter& message, const Node& node) const noexcept {
  message.add(", found ");
  switch (node.kind) {
    case NodeKind::null:
      message.add("nothing");
      return;
    case NodeKind::boolean:
      message.add(node.flag ? "true" : "false");
      return;
    case NodeKind::number:
      message.add(document.text(node.text));
      return;
    case NodeKind::string:
      message.add("the text ").add_quoted(document.text(node.text));
      return;
    case NodeKind::object:
      message.add("a group of fields");
      return;
    case NodeKind::array:
      message.add("a list");
      return;
  }
}

bool Validation::expect_object(std::uint32_t node, const Path& path) noexcept {
  const Node& value = document.node(node);
  if (value.kind == NodeKind::object) return true;
  FindingText finding = error(node, path);
  finding.message.add("must be a group of fields");
  add_found(finding.message, value);
  if (value.kind == NodeKind::null) finding.fix.add("write {} for an empty group, or leave the field out");
  return false;
}

bool Validation::expect_array(std::uint32_t node, const Path& path) noexcept {
  const Node& value = document.node(node);
  if (value.kind == NodeKind::array) return true;
  FindingText finding = error(node, path);
  finding.message.add("must be a list");
  add_found(finding.message, value);
  if (value.kind == NodeKind::string) {
    finding.fix.add("write [").add(document.text(value.text)).add("]");
  } else if (value.kind == NodeKind::null) {
    finding.fix.add("write [] for an empty list, or leave the field out");
  }
  return false;
}

const char* Validation::closest(const char* wrong, const char* const* names, std::size_t count) noexcept {
  const char* best = nullptr;
  std::size_t close = (strnlen(wrong, kComparedBytes) + 1) / 3;  // two letters swapped count as two edits
  auto best_distance = static_cast<std::uint32_t>(close < 3 ? close : 3);
  for (std::size_t i = 0; i < count; i++) {
    std::uint32_t distance = edit_distance(wrong, names[i]);
    if (distance < best_distance || (distance == best_distance && best == nullptr)) {
      best = names[i];
      best_distance = distance;
    }
  }
  return best;
}

void Validation::check_duplicates(std::uint32_t object, const Path& path) noexcept {
  for (std::uint32_t i = document.node(object).first_child; i != kNoNode; i = document.node(i).next) {
    const char* key = document.text(document.node(i).key);
    std::uint32_t first = document.find(object, key);
    if (first == i) continue;
    FindingText finding = error(i, child(path, key));
    finding.message.add("is given twice");
    if (document.node(first).line > 0) finding.message.add(", first in line ").add(document.node(first).line);
    finding.fix.add("keep one of the two");
  }
}

void Validation::check_fields(std::uint32_t object, const Path& path, const char* const* known,
                              std::size_t count) noexcept {
  for (std::uint32_t i = document.node(object).first_child; i != kNoNode; i = document.node(i).next) {
    const char* key = document.text(document.node(i).key);
    bool found = false;
    for (std::size_t k = 0; k < count && !found; k++) found = std::strcmp(known[k], key) == 0;
    if (found) continue;
    FindingText finding = error(i, child(path, key));
    finding.message.add("unknown field ").add_quoted(key);
    if (const char* meant = closest(key, known, count)) {
      finding.message.add(" (did you mean ").add(meant).add("?)");
      finding.fix.add("write ").add(meant).add(", or remove the field");
      continue;
    }
    finding.fix.add("known here: ");
    for (std::size_t k = 0; k < count; k++) finding.fix.add(k == 0 ? "" : ", ").add(known[k]);
  }
  check_duplicates(object, path);
}

Field Validation::read_number(std::uint32_t object, const Path& path, const char* name, Range range,
                              std::uint32_t& out) noexcept {
  std::uint32_t index = document.find(object, name);
  if (index == kNoNode) return Field::absent;
  const Node& node = document.node(index);
  bool whole = node.kind == NodeKind::number && node.is_integer;
  if (whole && node.integer >= static_cast<std::int64_t>(range.least) &&
      node.integer <= static_cast<std::int64_t>(range.most)) {
    out = static_cast<std::uint32_t>(node.integer);
    return Field::valid;
  }
  FindingText finding = error(index, child(path, name));
  finding.message.add("must be a whole number from ").add(range.least).add(" to ").add(range.most);
  finding.message.add(" (").add(range.unit).add(")");
  add_found(finding.message, node);
  if (node.kind == NodeKind::null) finding.fix.add("leave the field out for its default");
  if (node.kind == NodeKind::string) finding.fix.add("write the number without quotes and without a unit");
  return Field::invalid;
}

Field Validation::read_switch(std::uint32_t object, const Path& path, const char* name, bool& out) noexcept {
  std::uint32_t index = document.find(object, name);
  if (index == kNoNode) return Field::absent;
  const Node& node = document.node(index);
  if (node.kind == NodeKind::boolean) {
    out = node.flag;
    return Field::valid;
  }
  const char* text = node.kind == NodeKind::string ? document.text(node.text) : "";
  bool on = std::strcmp(text, "on") == 0;
  if (on || std::strcmp(text, "off") == 0) {
    out = on;
    return Field::valid;
  }
  FindingText finding = error(index, child(path, name));
  finding.message.add("must be on or off");
  add_found(finding.message, node);
  finding.fix.add("write on, off, true or false");
  return Field::invalid;
}

Field Validation::read_choice(std::uint32_t object, const Path& path, const char* name, const char* const* choices,
                              std::size_t count, std::uint32_t& out) noexcept {
  std::uint32_t index = document.find(object, name);
  if (index == kNoNode) return Field::absent;
  const Node& node = document.node(index);
  const char* text = node.kind == NodeKind::string ? document.text(node.text) : "";
  for (std::uint32_t i = 0; i < count; i++) {
    if (std::strcmp(choices[i], text) != 0) continue;
    out = i;
    return Field::valid;
  }
  FindingText finding = error(index, child(path, name));
  finding.message.add("must be ");
  for (std::size_t i = 0; i < count; i++) {
    finding.message.add(i == 0 ? "" : i + 1 == count ? " or " : ", ").add(choices[i]);
  }
  add_found(finding.message, node);
  const char* meant = closest(text, choices, count);
  if (meant != nullptr || count == 1) finding.fix.add("write ").add(meant != nullptr ? meant : choices[0]);
  return Field::invalid;
}

bool Validation::check_name(const char* text, std::uint32_t node, const Path& path, std::size_t size) noexcept {
  if (text[0] == '\0') {
    error(node, path).message.add("must not be empty");
    return false;
  }
  std::size_t length = std::strlen(text);
  if (length >= size) {
    FindingText finding = error(node, path);
    finding.message.add("is ").add(static_cast<std::uint64_t>(length)).add(" bytes long, at most ");
    finding.message.add(static_cast<std::uint64_t>(size - 1)).add(" are allowed");
    if (size == kNameBytes) finding.fix.add("PostgreSQL cuts names after 63 bytes: write the name the server has");
    return false;
  }
  for (const char* c = text; *c != '\0'; c++) {
    if (static_cast<unsigned char>(*c) >= 0x20 && *c != 0x7F) continue;
    FindingText finding = error(node, path);
    finding.message.add("contains a control character at byte ").add(static_cast<std::uint64_t>(c - text + 1));
    finding.fix.add("remove it");
    return false;
  }
  return true;
}

bool Validation::copy_name(std::uint32_t node, const Path& path, std::size_t size, char* out) noexcept {
  const Node& value = document.node(node);
  if (value.kind != NodeKind::string) {
    FindingText finding = error(node, path);
    finding.message.add("must be a text");
    add_found(finding.message, value);
    if (value.kind == NodeKind::number || value.kind == NodeKind::boolean) finding.fix.add("put it in quotes");
    return false;
  }
  const char* text = document.text(value.text);
  if (!check_name(text, node, path, size)) return false;
  TextWriter(out, size).add(text);
  return true;
}

bool Validation::copy_key(std::uint32_t node, const Path& path, std::size_t size, char* out) noexcept {
  const char* text = document.text(document.node(node).key);
  if (!check_name(text, node, path, size)) return false;
  TextWriter(out, size).add(text);
  return true;
}

Field Validation::read_name(std::uint32_t object, const Path& path, const char* name, std::size_t size,
                            char* out) noexcept {
  std::uint32_t index = document.find(object, name);
  if (index == kNoNode) return Field::absent;
  return copy_name(index, child(path, name), size, out) ? Field::valid : Field::invalid;
}

int Validation::read_class(std::uint32_t node, const Path& path) noexcept {
  char name[kNameBytes];
  if (!copy_name(node, path, sizeof(name), name)) return -1;
  const char* names[kMaxClasses];
  for (std::uint8_t i = 0; i < policy.class_count; i++) {
    names[i] = policy.classes[i].name;
    if (std::strcmp(names[i], name) == 0) return i;
  }
  FindingText finding = error(node, path);
  finding.message.add("there is no execution class ").add_quoted(name);
  if (const char* meant = closest(name, names, policy.class_count)) {
    finding.message.add(" (did you mean ").add(meant).add("?)");
  }
  finding.fix.add("declare it under executionClasses, or name one of: ");
  for (std::uint8_t i = 0; i < policy.class_count; i++) finding.fix.add(i == 0 ? "" : ", ").add(names[i]);
  return -1;
}

}  // namespace sluice::policy
