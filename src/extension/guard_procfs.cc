#include "extension/pg.h"

// PostgreSQL's headers come first.
#include "extension/guard_procfs.h"

#ifdef __linux__

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace sluice::extension {

namespace {

constexpr std::size_t kTextBytes = 64 * 1024;
constexpr std::size_t kTableBytes = 8 * 1024 * 1024;  // of /proc/net/tcp: at most this much is read
constexpr int kMaxSockets = 4096;
constexpr int kMaxSocketsPerProcess = 4;
constexpr int kMaxDescriptors = 64;

char text[kTextBytes];  // the worker has one thread

struct OwnedSocket {
  std::uint64_t inode;
  int login;
};

OwnedSocket sockets[kMaxSockets];

// The file's bytes, cut at the buffer; always NUL-terminated. -1: cannot be read.
ssize_t read_file(const char* path, char* out, std::size_t size) {
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return -1;
  std::size_t length = 0;
  while (length < size - 1) {
    const ssize_t got = read(descriptor, out + length, size - 1 - length);
    if (got <= 0) break;
    length += static_cast<std::size_t>(got);
  }
  close(descriptor);
  out[length] = '\0';
  return static_cast<ssize_t>(length);
}

int add_sockets(int pid, int login, int count) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd", pid);
  DIR* directory = opendir(path);
  if (directory == nullptr) return count;
  int found = 0;
  int seen = 0;
  while (const dirent* entry = readdir(directory)) {
    if (++seen > kMaxDescriptors || found == kMaxSocketsPerProcess || count == kMaxSockets) break;
    char target[64];
    const ssize_t length = readlinkat(dirfd(directory), entry->d_name, target, sizeof target - 1);
    if (length <= 0) continue;
    target[length] = '\0';
    if (strncmp(target, "socket:[", 8) != 0) continue;
    sockets[count++] = {strtoull(target + 8, nullptr, 10), login};
    ++found;
  }
  closedir(directory);
  return count;
}

bool parse_source(const char* hex, Source& source) {
  const std::size_t length = strspn(hex, "0123456789ABCDEFabcdef");
  if (length != 8 && length != 32) return false;
  Source parsed = {{0, 0, htonl(0xFFFF), 0}};
  const std::size_t words = length / 8;
  for (std::size_t i = 0; i < words; ++i) {
    char word[9] = {};
    memcpy(word, hex + i * 8, 8);
    parsed.words[words == 1 ? 3 : i] = static_cast<std::uint32_t>(strtoul(word, nullptr, 16));
  }
  const bool mapped = parsed.words[0] == 0 && parsed.words[1] == 0 && parsed.words[2] == htonl(0xFFFF);
  if (!mapped) parsed.words[2] = parsed.words[3] = 0;
  source = parsed;
  return true;
}

// "  0: LOCAL:PORT REMOTE:PORT STATE TX:RX TR:WHEN RETRANSMITS UID TIMEOUT INODE …"
void match_line(const char* line, const OwnedSocket* begin, const OwnedSocket* end, LoginInProgress* logins) {
  const char* fields[10];
  int count = 0;
  for (const char* at = line; *at != '\0' && count < 10; ++count) {
    at += strspn(at, " ");
    if (*at == '\0') break;
    fields[count] = at;
    at += strcspn(at, " ");
  }
  if (count < 10) return;
  const std::uint64_t inode = strtoull(fields[9], nullptr, 10);
  const OwnedSocket* found = std::lower_bound(
      begin, end, inode, [](const OwnedSocket& socket, std::uint64_t wanted) { return socket.inode < wanted; });
  for (; found != end && found->inode == inode; ++found) (void)parse_source(fields[2], logins[found->login].source);
}

void match_table(const char* path, int socket_count, LoginInProgress* logins) {
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  std::size_t held = 0;
  std::size_t total = 0;
  while (total < kTableBytes) {
    const ssize_t got = read(descriptor, text + held, kTextBytes - 1 - held);
    if (got <= 0) break;
    total += static_cast<std::size_t>(got);
    held += static_cast<std::size_t>(got);
    text[held] = '\0';
    char* line = text;
    while (char* end = static_cast<char*>(memchr(line, '\n', held - static_cast<std::size_t>(line - text)))) {
      *end = '\0';
      match_line(line, sockets, sockets + socket_count, logins);
      line = end + 1;
    }
    held -= static_cast<std::size_t>(line - text);
    if (held == kTextBytes - 1) break;  // a line that long is none of these tables'
    memmove(text, line, held);
  }
  close(descriptor);
}

}  // namespace

int list_children(int parent, int* pids, int max_pids) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
  if (read_file(path, text, kTextBytes) < 0) return -1;
  int count = 0;
  char* at = text;
  while (count < max_pids) {
    char* end = at;
    const long pid = strtol(at, &end, 10);
    if (end == at) break;
    if (*end != ' ' && *end != '\n') break;  // cut at the buffer's end: not a whole number
    if (pid > 1) pids[count++] = static_cast<int>(pid);
    at = end;
  }
  return count;
}

bool read_process(int pid, ProcessFacts& facts) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  char line[1024];
  if (read_file(path, line, sizeof line) <= 0) return false;
  // The command is in parentheses and may hold anything; the fields behind it are counted from its end.
  const char* at = strrchr(line, ')');
  if (at == nullptr) return false;
  ++at;
  unsigned long long values[22] = {};
  for (int field = 3; field <= 22; ++field) {
    at += strspn(at, " ");
    if (*at == '\0') return false;
    if (field == 3) facts.sleeping = *at == 'S';
    values[field - 1] = field == 3 ? 0 : strtoull(at, nullptr, 10);
    at += strcspn(at, " ");
  }
  facts.parent = static_cast<int>(values[3]);
  facts.start_ticks = values[21];
  timespec uptime;
  if (clock_gettime(CLOCK_BOOTTIME, &uptime) != 0) return false;
  const auto ticks_per_second = static_cast<std::int64_t>(sysconf(_SC_CLK_TCK));
  const auto start_us = static_cast<std::int64_t>(facts.start_ticks) * (1'000'000 / ticks_per_second);
  facts.age_us = static_cast<std::int64_t>(uptime.tv_sec) * 1'000'000 + uptime.tv_nsec / 1000 - start_us;
  return true;
}

bool same_command_line(int pid, int other) {
  static char mine[4096];
  static char theirs[4096];
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  const ssize_t length = read_file(path, mine, sizeof mine);
  snprintf(path, sizeof path, "/proc/%d/cmdline", other);
  return length > 0 && read_file(path, theirs, sizeof theirs) == length &&
         memcmp(mine, theirs, static_cast<std::size_t>(length)) == 0;
}

void find_sources(LoginInProgress* logins, int count) {
  int socket_count = 0;
  for (int login = 0; login < count; ++login) {
    const Source none = {};
    if (logins[login].source == none) socket_count = add_sockets(logins[login].pid, login, socket_count);
  }
  if (socket_count == 0) return;
  std::sort(sockets, sockets + socket_count,
            [](const OwnedSocket& a, const OwnedSocket& b) { return a.inode < b.inode; });
  match_table("/proc/net/tcp", socket_count, logins);
  match_table("/proc/net/tcp6", socket_count, logins);
}

bool terminate_confirmed(int pid, Confirm still_the_one, const void* context) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_send_signal)
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return false;
  // The pidfd names one process for good; whatever is confirmed now is what gets the signal.
  const bool sent = still_the_one(pid, context) && syscall(SYS_pidfd_send_signal, process, SIGTERM, nullptr, 0) == 0;
  close(process);
  return sent;
#else
  (void)pid;
  (void)still_the_one;
  (void)context;
  return false;
#endif
}

}  // namespace sluice::extension

#else

namespace sluice::extension {

int list_children(int, int*, int) { return -1; }
bool read_process(int, ProcessFacts&) { return false; }
bool same_command_line(int, int) { return false; }
void find_sources(LoginInProgress*, int) {}
bool terminate_confirmed(int, Confirm, const void*) { return false; }

}  // namespace sluice::extension

#endif
