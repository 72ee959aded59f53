// The settings (`pg_sluice.*`). docs/settings.md lists each with its default, unit and when a change takes effect.
#pragma once

#include "extension/pg.h"
#include "ledger/region.h"

namespace sluice::extension {

enum Enforcement : int {
  kEnforcePolicy = 0,
  kEnforceShadow = 1,
  kEnforceOff = 2
};  // the values of Header::switch_mode
enum OnFault : int { kAdmit = 0, kRefuse = 1 };

struct Settings {
  // postmaster
  char* database;  // where the SQL objects live and the publisher connects
  char* label;     // '': cluster_name
  int max_tenants;
  int max_classes;
  int max_events;
  int max_receipts;
  int max_refusal_cells;
  // sighup
  int enforcement;  // Enforcement
  int on_fault;     // OnFault
  bool login_guard;
  // user
  char* declared_class;   // pg_sluice.class
  char* declared_tenant;  // pg_sluice.tenant
  char* ticket;           // pg_sluice.ticket; read through declared_ticket() (standing.h)
  int queue_deadline_ms;  // 0 or -1: the class's own
};

extern Settings settings;

void define_settings();

// "policy", "shadow" or "off".
const char* enforcement_name(int enforcement);

// pg_sluice.label, or cluster_name where it is empty.
const char* cluster_label();

// The region's sizes from the settings and MaxBackends; call when MaxBackends is known (shmem_request_hook).
ledger::Sizes region_sizes();

}  // namespace sluice::extension
