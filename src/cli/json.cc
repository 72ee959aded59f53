#include "cli/json.h"

#include <cstdio>

namespace sluice::cli {
namespace {

using policy::Document;
using policy::kNoNode;
using policy::Node;
using policy::NodeKind;

void append_string(std::string& out, const char* text) {
  out += '"';
  for (const char* c = text; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') {
      out += '\\';
      out += *c;
    } else if (static_cast<unsigned char>(*c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(*c));
      out += escape;
    } else {
      out += *c;
    }
  }
  out += '"';
}

// Recursion is bounded by the document's kMaxDepth.
void append_node(std::string& out, const Document& document, std::uint32_t index) {
  const Node& node = document.node(index);
  switch (node.kind) {
    case NodeKind::null:
      out += "null";
      return;
    case NodeKind::boolean:
      out += node.flag ? "true" : "false";
      return;
    case NodeKind::number:
      out += document.text(node.text);
      return;
    case NodeKind::string:
      append_string(out, document.text(node.text));
      return;
    case NodeKind::object:
    case NodeKind::array:
      break;
  }
  bool object = node.kind == NodeKind::object;
  out += object ? '{' : '[';
  for (std::uint32_t i = node.first_child; i != kNoNode; i = document.node(i).next) {
    if (i != node.first_child) out += ", ";
    if (object) {
      append_string(out, document.text(document.node(i).key));
      out += ": ";
    }
    append_node(out, document, i);
  }
  out += object ? '}' : ']';
}

}  // namespace

std::string to_json(const Document& document) {
  std::string out;
  if (document.root() != kNoNode) append_node(out, document, document.root());
  return out;
}

}  // namespace sluice::cli
