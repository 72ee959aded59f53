#include "cli/lint.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <vector>

#include "cli/text_file.h"
#include "cli/yaml.h"
#include "policy/text.h"

namespace sluice::cli {
namespace {

using policy::Finding;
using policy::Severity;

std::string shown_name(const std::string& file) { return file == "-" ? "(standard input)" : file; }

// Messages quote what the file says: a terminal must not obey it.
std::string printable(const std::string& text) {
  std::string result = text;
  std::replace_if(
      result.begin(), result.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return result;
}

void print_finding(std::ostream& out, const std::string& file, std::uint32_t line, const char* severity,
                   const std::string& path, const std::string& message, const std::string& fix) {
  out << file;
  if (line > 0) out << ':' << line;
  out << ": " << severity << ": ";
  if (!path.empty()) out << printable(path) << ": ";
  out << printable(message) << '\n';
  if (!fix.empty()) out << "    fix: " << printable(fix) << '\n';
}

void print_findings(std::ostream& out, const std::string& file, const policy::Findings& findings, Shown shown) {
  std::vector<const Finding*> sorted;
  for (std::uint32_t i = 0; i < findings.count; i++) {
    const Finding& finding = findings.entries[i];
    if (shown == Shown::everything || finding.severity == Severity::error) sorted.push_back(&finding);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Finding* a, const Finding* b) { return a->line < b->line; });
  for (const Finding* finding : sorted) {
    const char* severity = finding->severity == Severity::error ? "error" : "warning";
    print_finding(out, file, finding->line, severity, finding->path, finding->message, finding->fix);
  }
  if (findings.dropped > 0) out << file << ": " << findings.dropped << " more findings are not shown\n";
}

// The label of "label/role", as far as the document has one.
std::string document_label(const policy::Document& document) {
  std::uint32_t node = document.find(document.root(), "database");
  if (node == policy::kNoNode || document.node(node).kind != policy::NodeKind::string) return "";
  std::string text = document.text(document.node(node).text);
  return text.substr(0, text.rfind('/'));
}

bool is_for_standby(const policy::Document& document) {
  std::uint32_t node = document.find(document.root(), "database");
  if (node == policy::kNoNode || document.node(node).kind != policy::NodeKind::string) return false;
  std::string text = document.text(document.node(node).text);
  return text.size() > 5 && text.compare(text.size() - 5, 5, "/read") == 0;
}

policy::ServerFacts server_facts(const LintOptions& options, const policy::Document& document) {
  policy::ServerFacts facts{};
  facts.known = options.max_connections.has_value();
  facts.max_connections = options.max_connections.value_or(0);
  facts.superuser_reserved_connections = options.superuser_reserved_connections;
  facts.reserved_connections = options.reserved_connections;
  facts.max_wal_senders = options.max_wal_senders;
  facts.newest_generation = options.newest_generation;
  facts.in_recovery = is_for_standby(document);
  std::string label = options.label.empty() ? document_label(document) : options.label;
  policy::TextWriter(facts.label, sizeof(facts.label)).add(label.c_str());
  return facts;
}

std::string counted(std::uint32_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

CheckedPolicy check_policy(const LintOptions& options, const std::string& text, std::ostream& out, Shown shown) {
  CheckedPolicy checked;
  std::string file = shown_name(options.file);
  try {
    read_yaml(text, *checked.document);
  } catch (const TextError& error) {
    print_finding(out, file, error.line, "error", "", error.what(), error.fix);
    return checked;
  }
  policy::ServerFacts facts = server_facts(options, *checked.document);
  checked.valid = policy::validate(*checked.document, facts, *checked.policy, *checked.findings);
  print_findings(out, file, *checked.findings, shown);
  return checked;
}

int lint(const LintOptions& options, std::ostream& out) {
  std::string text = read_text_file(options.file);
  CheckedPolicy checked = check_policy(options, text, out);
  const policy::Findings& findings = *checked.findings;
  std::string file = shown_name(options.file);
  if (!checked.valid) {
    out << file << ": refused, " << counted(std::max(findings.errors, 1U), "error") << '\n';
    return 1;
  }
  std::uint32_t warnings = findings.count + findings.dropped;
  out << file << ": valid, " << (warnings == 0 ? "no warnings" : counted(warnings, "warning")) << '\n';
  return 0;
}

}  // namespace sluice::cli
