#include "proxy/credential_file.h"

#include <algorithm>
#include <unordered_set>

#include "wire/startup.h"

namespace sluice::proxy {
namespace {

constexpr std::uint32_t kIterations = 4096;  // PostgreSQL's default
constexpr std::size_t kSaltBytes = 16;       // and its length of a salt

bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }

void skip_blanks(std::string_view& line) noexcept {
  while (!line.empty() && is_blank(line[0])) line.remove_prefix(1);
}

// One word, with or without quotes. False for an unfinished quote, and for none at all.
bool take_word(std::string_view& line, std::string& word) {
  word.clear();
  skip_blanks(line);
  if (line.empty() || line[0] == '#') return false;
  if (line[0] != '"') {
    while (!line.empty() && !is_blank(line[0]) && line[0] != '"' && line[0] != '#') {
      word += line[0];
      line.remove_prefix(1);
    }
    return true;
  }
  line.remove_prefix(1);
  while (!line.empty()) {
    char c = line[0];
    line.remove_prefix(1);
    if (c != '"') {
      word += c;
      continue;
    }
    if (line.empty() || line[0] != '"') return true;
    word += '"';
    line.remove_prefix(1);
  }
  return false;
}

bool is_md5(std::string_view secret) noexcept {
  return secret.size() == 35 && secret.starts_with("md5") && std::all_of(secret.begin() + 3, secret.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string_view read_secret(std::string_view secret, FileCredential& entry) {
  if (parse_verifier(secret, entry.keys.verifier)) return {};
  if (secret.empty()) return "the secret is empty";
  if (is_md5(secret)) return "md5 is not accepted: give a SCRAM verifier or a password";
  if (secret.starts_with("SCRAM-SHA-256$")) return "the SCRAM verifier is malformed";
  std::uint8_t salt[kSaltBytes];
  entry.has_password = true;
  entry.password = Secret(secret);
  Secret prepared = saslprep(secret);
  if (!random_bytes(salt)) return "there are no random bytes for a salt";
  return derive_keys(prepared.view(), to_base64(salt), kIterations, entry.keys) ? "" : "the password cannot be hashed";
}

// Empty where the line is fine. An empty line, or one with a comment only, leaves `entry` without a user.
std::string_view read_line(std::string_view line, FileCredential& entry) {
  skip_blanks(line);
  if (line.empty() || line[0] == '#') return {};
  std::string secret;
  if (!take_word(line, entry.user)) return "a quote is not closed";
  if (entry.user.empty() || entry.user.size() > wire::kMaxNameBytes) return "a role's name has 1 to 63 bytes";
  std::string_view problem = take_word(line, secret) ? read_secret(secret, entry) : "the secret is missing";
  OPENSSL_cleanse(secret.data(), secret.size());
  if (!problem.empty()) return problem;
  skip_blanks(line);
  return line.empty() || line[0] == '#' ? "" : "there is more than a name and a secret";
}

}  // namespace

CredentialFile read_credential_file(std::string_view text) {
  CredentialFile file;
  std::unordered_set<std::string> users;
  std::size_t passwords = 0;
  for (std::size_t number = 1; !text.empty(); number++) {
    std::size_t end = std::min(text.find('\n'), text.size());
    FileCredential entry;
    std::string_view problem = read_line(text.substr(0, end), entry);
    text.remove_prefix(std::min(end + 1, text.size()));
    bool is_entry = problem.empty() && !entry.user.empty();
    if (is_entry && entry.has_password) passwords++;
    if (is_entry && !users.insert(entry.user).second) problem = "the role has an entry already";
    if (users.size() > kMaxFileCredentials) problem = "there are too many entries";
    if (passwords > kMaxFilePasswords) problem = "there are too many passwords; give SCRAM verifiers instead";
    if (!problem.empty()) {
      file.entries.clear();
      file.error = "line " + std::to_string(number) + ": " + std::string(problem);
      return file;
    }
    if (is_entry) file.entries.push_back(std::move(entry));
  }
  return file;
}

}  // namespace sluice::proxy
