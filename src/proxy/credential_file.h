// A file of credentials: one role a line, `"name" "secret"`. The secret is a SCRAM verifier as pg_authid has it, which
// lets clients in, or a password, which lets clients in and the proxy into the server as well. Quotes may be left out
// where there is no blank, quote or '#'; a quote inside is doubled. Reading the file is the caller's.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/scram_keys.h"

namespace sluice::proxy {

inline constexpr std::size_t kMaxFileCredentials = 100'000;
// Each one is hashed while the file is read, about 2 ms.
inline constexpr std::size_t kMaxFilePasswords = 1'000;

struct FileCredential {
  std::string user;
  ClientKeys keys;  // the verifier in it always counts; the client key only where has_password
  bool has_password = false;
  Secret password;
};

struct CredentialFile {
  std::vector<FileCredential> entries;
  std::string error;  // a sentence with the line's number, never with its secret; empty: all is well
};

// A password gets a salt of its own each time it is read, so that two proxies do not share a verifier. md5 hashes are
// refused: nothing could be verified against them that would not be known to whoever has read the file.
[[nodiscard]] CredentialFile read_credential_file(std::string_view text);

}  // namespace sluice::proxy
