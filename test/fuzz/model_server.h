// A PostgreSQL that keeps to the protocol: it answers whatever a session sends it, fails now and then, tracks its
// transaction, COPY and named statements, and carries out nothing. What a session may rely on, and no more.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/messages.h"
#include "wire/frontend_messages.h"
#include "wire/statement.h"

namespace sluice::fuzz {

class ModelServer {
 public:
  // Seed 0: nothing ever fails.
  explicit ModelServer(std::uint32_t seed) : seed_(seed) {}

  // The answers to what came, as far as it is whole.
  [[nodiscard]] std::string take(std::string_view bytes) {
    input_ += bytes;
    std::string answers;
    while (!dead_ && input_.size() >= 5) {
      std::size_t size = wire::read_uint32(wire::as_bytes(input_).data() + 1) + std::size_t{1};
      if (input_.size() < size) break;
      answers += carry_out(input_[0], std::string_view(input_).substr(5, size - 5));
      input_.erase(0, size);
    }
    return answers;
  }

  // Nothing is under way: the next client finds a connection as new.
  [[nodiscard]] bool is_clean() const {
    return !dead_ && input_.empty() && status_ == 'I' && !skipping_ && copy_ == Copy::none && !batch_open_;
  }
  // It has sent a FATAL; the connection is closed.
  [[nodiscard]] bool is_dead() const { return dead_; }
  [[nodiscard]] std::size_t copies() const { return copies_; }

 private:
  enum class Copy : std::uint8_t { none, of_query, of_batch };

  [[nodiscard]] bool chance(std::uint32_t of) {
    if (seed_ == 0) return false;
    seed_ = seed_ * 1664525U + 1013904223U;
    return (seed_ >> 16U) % of == 0;
  }

  [[nodiscard]] std::string ready() {
    std::string before = chance(16) ? message('S', terminated("TimeZone") + terminated(chance(2) ? "UTC" : "CET")) : "";
    return before + message('Z', std::string(1, status_));
  }

  [[nodiscard]] std::string fail(std::string_view sqlstate) {
    if (status_ == 'T') status_ = 'E';
    return error("ERROR", sqlstate);
  }

  [[nodiscard]] std::string fail_batch(std::string_view sqlstate) {
    skipping_ = true;
    return fail(sqlstate);
  }

  [[nodiscard]] std::string carry_out(char type, std::string_view payload) {
    if (copy_ != Copy::none) return carry_on_copy(type);
    if (type == 'S') {
      skipping_ = batch_open_ = false;
      return ready();
    }
    if (skipping_) return {};
    std::string notice = chance(32) ? message('N', terminated("SNOTICE") + '\0') : "";
    switch (type) {
      case 'Q':
        batch_open_ = false;
        return notice + query(payload);
      case 'F':
        batch_open_ = false;
        return notice + (chance(4) ? fail("22012") : message('V', big_endian(0xFFFFFFFF))) + ready();
      case 'H':
      case 'd':
      case 'c':
      case 'f':
        return {};
      default:
        batch_open_ = true;
        return notice + batch(type, payload);
    }
  }

  // What a session sends where a client's statement is to fail in its place.
  [[nodiscard]] static bool is_no_statement(std::string_view text) { return text.starts_with("refused"); }

  // Data is swallowed, Flush and Sync are passed over, and anything else is more than the server can recover from.
  [[nodiscard]] std::string carry_on_copy(char type) {
    bool of_query = copy_ == Copy::of_query;
    if (type == 'd' || type == 'H' || type == 'S') return {};
    copy_ = Copy::none;
    if (type != 'c' && type != 'f') {
      dead_ = true;
      return error("ERROR", "08P01") + error("FATAL", "08P01");
    }
    bool fails = type == 'f' || chance(8);
    if (!of_query) return fails ? fail_batch("57014") : message('C', terminated("COPY 1"));
    return (fails ? fail("57014") : message('C', terminated("COPY 1"))) + ready();
  }

  [[nodiscard]] std::string begin_copy(Copy copy) {
    copy_ = copy;
    copies_++;
    return message('G', std::string(3, '\0'));
  }

  [[nodiscard]] static std::string copy_out() {
    return message('H', std::string(3, '\0')) + message('d', "x") + message('c') + message('C', terminated("COPY 1"));
  }

  [[nodiscard]] std::string query(std::string_view payload) {
    wire::ByteReader reader(wire::as_bytes(payload));
    std::string_view text = reader.text();
    if (!reader.finished()) return fail("08P01") + ready();
    wire::StatementSplitter splitter;
    wire::Statement statement = {};
    std::string answers;
    std::string_view rest = text;
    bool any = false;
    while (splitter.next(rest, statement) || splitter.finish(statement)) {
      any = true;
      bool ends = statement.kind == wire::StatementKind::rollback || statement.kind == wire::StatementKind::commit;
      if (status_ == 'E' && !ends) return answers + fail("25P02") + ready();
      if (is_no_statement(text)) return answers + fail("42601") + ready();
      if (chance(8) && !ends) return answers + fail("22012") + ready();
      if (statement.kind == wire::StatementKind::copy_from_client) return answers + begin_copy(Copy::of_query);
      answers += carry_out_statement(statement, text);
    }
    return answers + (any ? "" : message('I')) + ready();
  }

  [[nodiscard]] std::string carry_out_statement(const wire::Statement& statement, std::string_view text) {
    switch (statement.kind) {
      case wire::StatementKind::begin:
        status_ = 'T';
        return message('C', terminated("BEGIN"));
      case wire::StatementKind::commit:
      case wire::StatementKind::rollback: {
        bool commits = statement.kind == wire::StatementKind::commit && status_ != 'E';
        status_ = (statement.flags & wire::kChain) != 0 && status_ != 'I' ? 'T' : 'I';
        return message('C', terminated(commits ? "COMMIT" : "ROLLBACK"));
      }
      case wire::StatementKind::deallocate_all:
      case wire::StatementKind::discard_all:
        statements_.clear();
        return message(
            'C', terminated(statement.kind == wire::StatementKind::discard_all ? "DISCARD ALL" : "DEALLOCATE ALL"));
      case wire::StatementKind::unlisten:
        return message('C', terminated("UNLISTEN"));
      case wire::StatementKind::set:
        return message('C', terminated("SET"));
      case wire::StatementKind::copy_to_client:
        return copy_out();
      default:
        return rows(text.substr(statement.begin, statement.end - statement.begin)) +
               message('C', terminated("SELECT 1"));
    }
  }

  // As many columns as a session's own questions ask for: the settings it gives, or the ones it reads back.
  [[nodiscard]] std::string rows(std::string_view text) {
    if (text.starts_with("SELECT name,pg_catalog.current_setting(name)")) {
      return chance(2) ? row({"DateStyle", "German, DMY"}) : row({"work_mem", "4MB"});
    }
    std::vector<std::string> values;
    bool reads_back = text.starts_with("SELECT pg_catalog.current_setting('role'),session_user");
    if (reads_back) values = {chance(16) ? "another" : "none", "app"};
    std::string_view call = reads_back ? ",pg_catalog.current_setting(" : "set_config(";
    for (std::size_t at = text.find(call); at != text.npos; at = text.find(call, at + 1)) values.emplace_back("v");
    if (values.empty()) values.emplace_back("1");
    return row(values);
  }

  [[nodiscard]] static std::string row(const std::vector<std::string>& values) {
    std::string payload = {static_cast<char>(values.size() >> 8U), static_cast<char>(values.size())};
    for (const std::string& value : values) payload += big_endian(value.size()) + value;
    return message('T', std::string(2, '\0')) + message('D', payload);
  }

  [[nodiscard]] std::string batch(char type, std::string_view payload) {
    wire::Bytes bytes = wire::as_bytes(payload);
    if (chance(8)) return fail_batch("22012");
    switch (type) {
      case 'P': {
        wire::Parse parse = {};
        if (!wire::read_parse(bytes, parse)) return fail_batch("08P01");
        if (is_no_statement(parse.query)) return fail_batch("42601");
        if (parse.statement.empty()) unnamed_unlistens_ = parse.query.starts_with("UNLISTEN");
        bool again = !parse.statement.empty() && !statements_.insert(std::string(parse.statement)).second;
        return again ? fail_batch("42P05") : message('1');
      }
      case 'B': {
        wire::BindHead head = {};
        if (wire::read_bind_head(bytes, true, head) != wire::Reading::complete) return fail_batch("08P01");
        bool absent = !head.statement.empty() && !statements_.contains(std::string(head.statement));
        if (absent) return fail_batch("26000");
        portals_[std::string(head.portal)] = head.statement.empty() && unnamed_unlistens_;
        return message('2');
      }
      case 'D':
      case 'C': {
        wire::Named named = {};
        if (!wire::read_named(bytes, named)) return fail_batch("08P01");
        if (type == 'D') return message('n');
        if (named.target == wire::Target::statement) statements_.erase(std::string(named.name));
        return message('3');
      }
      default:
        return execute(payload);
    }
  }

  // What a session sends in the place of DEALLOCATE is known; any other portal may be made of anything.
  [[nodiscard]] std::string execute(std::string_view payload) {
    wire::Execute execute = {};
    bool read = wire::read_execute(wire::as_bytes(payload), execute);
    bool unlistens = read && portals_[std::string(execute.portal)];
    if (unlistens) return status_ == 'E' ? fail_batch("25P02") : message('C', terminated("UNLISTEN"));
    if (status_ == 'E' && !chance(2)) return fail_batch("25P02");
    if (status_ == 'E' || (status_ == 'T' && chance(4))) {
      bool failed = status_ == 'E';
      status_ = 'I';
      return message('C', terminated(failed ? "ROLLBACK" : "COMMIT"));
    }
    if (chance(16)) return begin_copy(Copy::of_batch);
    if (chance(16)) return copy_out();
    if (chance(8)) return message('s');
    if (chance(16)) return message('I');
    if (status_ == 'I' && chance(8)) {
      status_ = 'T';
      return message('C', terminated("BEGIN"));
    }
    return message('D', std::string(2, '\0')) + message('C', terminated("SELECT 1"));
  }

  std::uint32_t seed_;
  std::string input_;
  char status_ = 'I';
  bool skipping_ = false;
  bool batch_open_ = false;
  bool dead_ = false;
  Copy copy_ = Copy::none;
  std::size_t copies_ = 0;
  std::set<std::string> statements_;
  std::map<std::string, bool> portals_;  // whether all that it does is UNLISTEN
  bool unnamed_unlistens_ = false;
};

}  // namespace sluice::fuzz
