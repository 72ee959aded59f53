/* pg_sluice 1.0. Every name is qualified; everything is revoked from PUBLIC at the end of the script. */
\echo Use "CREATE EXTENSION pg_sluice" to load this file. \quit

CREATE SCHEMA sluice;
COMMENT ON SCHEMA sluice IS 'Admission control: session permits for logins, execution permits for transactions. Start with sluice.status.';

-- Fails with 55000 and the line to add where the library is not preloaded, before anything exists that could not work.
CREATE FUNCTION sluice._require() RETURNS void
  LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'sluice_require';
COMMENT ON FUNCTION sluice._require() IS 'Raises 55000 unless pg_sluice is in shared_preload_libraries and this library made the ledger.';
SELECT sluice._require();

-- Tables ------------------------------------------------------------------------------------------------------------------

CREATE TABLE sluice.policies (
  generation   bigint PRIMARY KEY CHECK (generation > 0),
  document     jsonb NOT NULL,
  state        text NOT NULL DEFAULT 'shadow' CHECK (state IN ('shadow', 'active', 'retired')),
  published_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  published_by text NOT NULL,
  activated_at timestamptz,
  activated_by text
);
COMMENT ON TABLE sluice.policies IS 'Published policies. The active one decides and is enforced; without one the newest in shadow decides and touches nothing. Change it through sluice.publish() and sluice.activate() only.';
COMMENT ON COLUMN sluice.policies.generation IS 'Number of the policy; strictly increasing.';
COMMENT ON COLUMN sluice.policies.document IS 'The document (dbAdmissionPolicy.v1) as it was sent.';
COMMENT ON COLUMN sluice.policies.state IS 'shadow: counted, not enforced; active: enforced; retired: a newer one has been enforced since.';
COMMENT ON COLUMN sluice.policies.published_at IS 'When it was published.';
COMMENT ON COLUMN sluice.policies.published_by IS 'Login role of the session that published it.';
COMMENT ON COLUMN sluice.policies.activated_at IS 'When activate() last changed its state; NULL: never.';
COMMENT ON COLUMN sluice.policies.activated_by IS 'Login role of the session that last called activate() for it.';

-- One enforced policy for the primary and one for standbys; a second one, made by hand, is refused.
CREATE UNIQUE INDEX policies_active ON sluice.policies ((coalesce(document OPERATOR(pg_catalog.->>) 'database', '') OPERATOR(pg_catalog.~~) '%/read'))
  WHERE state OPERATOR(pg_catalog.=) 'active';
COMMENT ON INDEX sluice.policies_active IS 'At most one policy per server role (write, read) is active.';

CREATE TABLE sluice.changes (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  who        text,
  what       text NOT NULL,
  generation bigint,
  why        text,
  diff       jsonb
);
COMMENT ON TABLE sluice.changes IS 'Who changed what governs this server, and when; the newest 10,000 entries. Also in the server log. Survives restarts.';
COMMENT ON COLUMN sluice.changes.id IS 'Increasing number of the entry.';
COMMENT ON COLUMN sluice.changes.at IS 'When it happened; for what the publisher saw, when it saw it.';
COMMENT ON COLUMN sluice.changes.who IS 'Login role; NULL: the server itself.';
COMMENT ON COLUMN sluice.changes.what IS 'publish, activate, switch (pg_sluice.enforcement), boot (start or crash restart: a new ledger), worker (restarted).';
COMMENT ON COLUMN sluice.changes.generation IS 'Generation of the policy concerned; NULL: none.';
COMMENT ON COLUMN sluice.changes.why IS 'What happened, in a sentence.';
COMMENT ON COLUMN sluice.changes.diff IS 'publish: {path: {"from": old, "to": new}} against the generation before; boot: boot id and epoch.';

SELECT pg_catalog.pg_extension_config_dump('sluice.policies', '');
SELECT pg_catalog.pg_extension_config_dump('sluice.changes', '');
SELECT pg_catalog.pg_extension_config_dump('sluice.changes_id_seq', '');
COMMENT ON SEQUENCE sluice.changes_id_seq IS 'Numbers of sluice.changes.';

-- Policies ----------------------------------------------------------------------------------------------------------------

CREATE FUNCTION sluice._diff(old_document jsonb, new_document jsonb) RETURNS jsonb
  LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
  WITH RECURSIVE
  old_values(path, value) AS (
    SELECT key, value FROM jsonb_each(CASE WHEN jsonb_typeof(old_document) = 'object' THEN old_document ELSE '{}' END)
    UNION ALL
    SELECT o.path || '.' || e.key, e.value
      FROM old_values o, jsonb_each(CASE WHEN jsonb_typeof(o.value) = 'object' THEN o.value ELSE '{}' END) e
  ),
  new_values(path, value) AS (
    SELECT key, value FROM jsonb_each(CASE WHEN jsonb_typeof(new_document) = 'object' THEN new_document ELSE '{}' END)
    UNION ALL
    SELECT n.path || '.' || e.key, e.value
      FROM new_values n, jsonb_each(CASE WHEN jsonb_typeof(n.value) = 'object' THEN n.value ELSE '{}' END) e
  )
  SELECT coalesce(jsonb_object_agg(path, jsonb_strip_nulls(jsonb_build_object('from', o.value, 'to', n.value)) ORDER BY path), '{}')
    FROM (SELECT * FROM old_values WHERE jsonb_typeof(value) <> 'object' OR value = '{}') o
    FULL JOIN (SELECT * FROM new_values WHERE jsonb_typeof(value) <> 'object' OR value = '{}') n USING (path)
   WHERE o.value IS DISTINCT FROM n.value
$$;
COMMENT ON FUNCTION sluice._diff(jsonb, jsonb) IS 'The leaves in which two documents differ: {path: {"from": old, "to": new}}; a side that is absent has no key.';

CREATE FUNCTION sluice.validate(document jsonb)
  RETURNS TABLE (severity text, path text, message text, fix text)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 8 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS 'MODULE_PATHNAME', 'sluice_validate';
COMMENT ON FUNCTION sluice.validate(jsonb) IS 'What publish() would say about a document on this server: errors and warnings with path, arithmetic and fix; no row: it is accepted as it stands. Errors: 22004 (NULL), 54000 (more than 8192 values, 256 kB of text or 16 levels), 22003 (a number with more than 64 digits).';

CREATE FUNCTION sluice.publish(document jsonb)
  RETURNS TABLE (generation bigint, mode text, warnings text[])
  LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS 'MODULE_PATHNAME', 'sluice_publish';
COMMENT ON FUNCTION sluice.publish(jsonb) IS 'Stores a policy as a new generation in shadow mode; it takes effect at COMMIT. Assigns the generation where the document has none. Errors: 22023 (refused: the first error is the message, all are in DETAIL; what is in force stays), 55000 (another database than pg_sluice.database), 25006 (standby or read-only transaction), 25001 (isolation level above READ COMMITTED), and those of validate().';

CREATE FUNCTION sluice.activate(generation bigint, mode text DEFAULT 'enforce', percent integer DEFAULT 100,
                                scope text DEFAULT 'all', over_limit text DEFAULT 'refuse')
  RETURNS TABLE (kind text, name text, rule text, now bigint, peak bigint, "limit" bigint, would_refuse bigint,
                 would_wait bigint, over boolean)
  LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 20 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS 'MODULE_PATHNAME', 'sluice_activate';
COMMENT ON FUNCTION sluice.activate(bigint, text, integer, text, text) IS 'Enforces a published generation (mode enforce) or puts it back into shadow, from COMMIT on; prints for every class, tenant, database and role what is now, its peak, the limit and what would have been refused or queued. While something is over its limit it is refused (55000) unless over_limit is drain: then what is open stays and nobody new is admitted until the number is below the limit. Errors: 42704 (not published), 55000 (over a limit, retired, wrong database), 22023 (a wrong argument, or no longer valid on this server), 0A000 (percent or scope for a part of the traffic), 25006, 25001.';

CREATE FUNCTION sluice.explain(role text, database text, class text DEFAULT NULL)
  RETURNS TABLE (step text, outcome text, rule text, used bigint, "limit" bigint, note text)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 12
  AS 'MODULE_PATHNAME', 'sluice_explain';
COMMENT ON FUNCTION sluice.explain(text, text, text) IS 'What would happen at this moment to a new session of the role in the database, optionally one that declares a class, and to its next transaction: step by step with the rule, what is used and the limit. Changes nothing. Errors: 42704 (no such role), 3D000 (no such database), 22004.';

CREATE FUNCTION sluice.reconcile()
  RETURNS TABLE (problem text, object text, recorded bigint, actual bigint, detail text)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 1
  AS 'MODULE_PATHNAME', 'sluice_reconcile';
COMMENT ON FUNCTION sluice.reconcile() IS 'Recomputes every balance of the ledger from its records and compares the records with the processes that exist. A healthy server gives no row, under load as well. Takes a fraction of a second while anything has to be looked at twice.';

-- What the views read -----------------------------------------------------------------------------------------------------

CREATE FUNCTION sluice._status()
  RETURNS TABLE (
    version text, build text, epoch bigint, boot_id uuid, started_at timestamptz,
    in_recovery boolean, policy_database text, label text,
    mode text, activation text, enforcement text, generation bigint,
    sessions bigint, session_limit bigint, peak_sessions bigint, unclaimed_guarantees bigint,
    admin_sessions bigint, admin_limit bigint, walsender_sessions bigint, unknown_sessions bigint,
    slots bigint, slots_free bigint,
    queued bigint, overdraft_in_use bigint, overdraft_limit bigint,
    guard_pid bigint, guard_beat_age_ms bigint, guard_starts bigint, guard_note text,
    publisher_pid bigint, publisher_beat_age_ms bigint, publisher_starts bigint, publisher_note text,
    alerts text[],
    sessions_admitted bigint, sessions_refused bigint, sessions_would_refuse bigint,
    tickets_refused bigint, waits_expired bigint, waits_cancelled bigint,
    overdraft_granted bigint, admitted_by_switch bigint, tenant_overflows bigint,
    reclaimed bigint, faults bigint, time_limit_cancels bigint, time_limit_terminates bigint,
    logins_terminated bigint, over_limit_grants bigint,
    memory_bytes bigint, session_records bigint, max_tenants bigint, tenants_used bigint,
    max_classes bigint, max_events bigint, max_receipts bigint, max_refusal_cells bigint,
    pushed_out bigint, borrow_cancels bigint)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 1 AS 'MODULE_PATHNAME', 'sluice_status';
COMMENT ON FUNCTION sluice._status() IS 'What the view sluice.status shows.';

CREATE FUNCTION sluice._classes()
  RETURNS TABLE (
    class text, state text, permits bigint, in_use bigint, free bigint, queued bigint, max_queue bigint,
    peak_in_use bigint, peak_queued bigint, queue_deadline_ms bigint, transaction_time_limit_ms bigint,
    granted bigint, handed_over bigint, waited bigint, refused bigint, expired bigint, cancelled bigint,
    would_wait bigint, would_refuse bigint, execution_seconds double precision, wait_ms_total double precision,
    wait_p50_ms bigint, wait_p99_ms bigint, wait_histogram bigint[],
    borrowed bigint, lent bigint, borrowed_from text[], borrows bigint, recalls bigint,
    pushed_out bigint, unreachable bigint, aging_ms bigint)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 8 AS 'MODULE_PATHNAME', 'sluice_classes';
COMMENT ON FUNCTION sluice._classes() IS 'What the view sluice.classes shows.';

CREATE FUNCTION sluice._tenants()
  RETURNS TABLE (
    tenant text, class text, rule text, weight bigint, in_use bigint, max_inflight bigint,
    queued bigint, peak_queued bigint,
    sessions bigint, max_sessions bigint, guaranteed_sessions bigint, peak_sessions bigint,
    granted bigint, execution_seconds double precision, waited bigint, refused bigint, expired bigint,
    cancelled bigint, would_wait bigint, session_refusals bigint, would_refuse_sessions bigint,
    last_used timestamptz, pushed_out bigint, mean_hold_ms double precision, expected_wait_ms double precision)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 100 AS 'MODULE_PATHNAME', 'sluice_tenants';
COMMENT ON FUNCTION sluice._tenants() IS 'What the view sluice.tenants shows.';

CREATE FUNCTION sluice._sessions()
  RETURNS TABLE (
    slot bigint, pid bigint, role text, database text, tenant text, class text, kind text, admin_role text,
    state text, counted boolean, backend_start timestamptz, opened_at timestamptz, idle_ms double precision,
    generation bigint, epoch bigint, connection_generation bigint)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 100 AS 'MODULE_PATHNAME', 'sluice_sessions';
COMMENT ON FUNCTION sluice._sessions() IS 'What the view sluice.sessions shows.';

CREATE FUNCTION sluice._tickets()
  RETURNS TABLE (
    pid bigint, slot bigint, state text, tenant text, class text, ticket uuid, generation bigint,
    committing boolean, expiring boolean, granted_at timestamptz, held_ms double precision,
    time_limit_ms double precision, source text, queue_position bigint, blocked_by text,
    waited_ms double precision, deadline_ms double precision, blocks_holder boolean,
    expected_wait_ms double precision, borrowed_from text, named boolean)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 100 AS 'MODULE_PATHNAME', 'sluice_tickets';
COMMENT ON FUNCTION sluice._tickets() IS 'What the view sluice.tickets shows, less what pg_stat_activity knows.';

CREATE FUNCTION sluice._refusals()
  RETURNS TABLE (
    minute timestamptz, tenant text, class text, reason text, rule text, would boolean, count bigint)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 100 AS 'MODULE_PATHNAME', 'sluice_refusals';
COMMENT ON FUNCTION sluice._refusals() IS 'What the view sluice.refusals adds up.';

CREATE FUNCTION sluice._unavailable()
  RETURNS TABLE (source text, reason text, count bigint)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 20 AS 'MODULE_PATHNAME', 'sluice_unavailable';
COMMENT ON FUNCTION sluice._unavailable() IS 'What the view sluice.unavailable shows.';

CREATE FUNCTION sluice._events()
  RETURNS TABLE (
    event text, reason text, rule text, class text, tenant text, database text, generation bigint,
    first_at timestamptz, last_at timestamptz, count bigint, ticket uuid)
  LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 100 AS 'MODULE_PATHNAME', 'sluice_events';
COMMENT ON FUNCTION sluice._events() IS 'What the view sluice.events adds up.';

-- Proxies -----------------------------------------------------------------------------------------------------------------

CREATE TABLE sluice.proxied_admins (
  role text PRIMARY KEY
);
COMMENT ON TABLE sluice.proxied_admins IS 'Superusers, replication roles and administrators whose verifier sluice.scram_verifier() hands out all the same, so that they may log in through a proxy. Empty at first.';
COMMENT ON COLUMN sluice.proxied_admins.role IS 'Name of the role.';
COMMENT ON INDEX sluice.proxied_admins_pkey IS 'Each role once.';
SELECT pg_catalog.pg_extension_config_dump('sluice.proxied_admins', '');

-- The argument is text: a name of more than 63 bytes, which type name would cut off, must not become another role's.
CREATE FUNCTION sluice.scram_verifier(role text, OUT verifier text, OUT valid_until timestamptz) RETURNS SETOF record
  LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED ROWS 1 SECURITY DEFINER SET search_path = pg_catalog, pg_temp
  AS $$
  SELECT a.rolpassword, a.rolvaliduntil
    FROM pg_catalog.pg_authid a
   WHERE a.rolname OPERATOR(pg_catalog.=) $1 AND a.rolcanlogin
     AND (NOT (a.rolreplication
               OR EXISTS (SELECT FROM pg_catalog.pg_authid s WHERE s.rolsuper AND pg_catalog.pg_has_role(a.oid, s.oid, 'member'))
               OR EXISTS (SELECT FROM sluice.policies p
                           WHERE p.document OPERATOR(pg_catalog.->) 'adminRoles' OPERATOR(pg_catalog.?) a.rolname::pg_catalog.text
                             AND (p.state OPERATOR(pg_catalog.=) 'active'
                                  OR p.generation OPERATOR(pg_catalog.=) (SELECT pg_catalog.max(n.generation) FROM sluice.policies n))))
          OR EXISTS (SELECT FROM sluice.proxied_admins l WHERE l.role OPERATOR(pg_catalog.=) $1))
$$;
COMMENT ON FUNCTION sluice.scram_verifier(text) IS 'What a proxy needs to let a role in: its password as pg_authid keeps it (NULL: none) and how long it is valid (NULL: for ever). No row: no such role, NOLOGIN, or one that no proxy may let in: superusers and their members, replication roles, and adminRoles of the active or newest policy, unless sluice.proxied_admins lists it. Grant EXECUTE to the role a proxy looks up with, and to nobody else: whoever knows a verifier can try passwords against it.';

-- Views -------------------------------------------------------------------------------------------------------------------

CREATE VIEW sluice.status AS SELECT * FROM sluice._status();
COMMENT ON VIEW sluice.status IS 'One row: what decides, who is connected against which limit, the two workers, and the alerts. An empty alerts array is the healthy state.';

CREATE VIEW sluice.classes AS SELECT * FROM sluice._classes();
COMMENT ON VIEW sluice.classes IS 'One row per execution class: permits, use, queue, peaks, waits. Counters since the ledger was made.';

CREATE VIEW sluice.tenants AS SELECT * FROM sluice._tenants();
COMMENT ON VIEW sluice.tenants IS 'One row per tenant and class: its share, what it runs and waits for, execution seconds. Sessions are those of the tenant over all classes.';

CREATE VIEW sluice.sessions AS SELECT * FROM sluice._sessions();
COMMENT ON VIEW sluice.sessions IS 'One row per session record: who holds which session permit.';

CREATE VIEW sluice.tickets AS
  SELECT t.pid, t.state, t.tenant, t.class, t.held_ms, t.waited_ms, t.queue_position, t.blocked_by, t.deadline_ms,
         t.time_limit_ms, t.source, t.blocks_holder, t.committing, t.expiring, t.granted_at, t.ticket, t.generation, t.slot,
         a.usename AS role, a.datname AS database, a.application_name, a.client_addr, a.state AS activity,
         a.wait_event_type, a.wait_event, a.query_id, a.query, t.expected_wait_ms, t.borrowed_from, t.named
    FROM sluice._tickets() t
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid::bigint OPERATOR(pg_catalog.=) t.pid;
COMMENT ON VIEW sluice.tickets IS 'One row per running or queued transaction: holders with the time held and what they wait for in PostgreSQL, waiters with their position and the rule they wait for.';

CREATE VIEW sluice.refusals AS
  SELECT minute, tenant, class, reason, rule, would, pg_catalog.sum(count)::bigint AS count
    FROM sluice._refusals() GROUP BY minute, tenant, class, reason, rule, would;
COMMENT ON VIEW sluice.refusals IS 'Refusals of the last 60 minutes by minute, tenant, class, reason and rule; would: counted in shadow, nobody was refused.';

CREATE VIEW sluice.events AS
  SELECT event, reason, rule, class, tenant, database, generation,
         pg_catalog.min(first_at) AS first_at, pg_catalog.max(last_at) AS last_at, pg_catalog.sum(count)::bigint AS count,
         (pg_catalog.array_agg(ticket ORDER BY last_at DESC))[1] AS ticket
    FROM sluice._events() GROUP BY event, reason, rule, class, tenant, database, generation;
COMMENT ON VIEW sluice.events IS 'What happened lately, repeats folded: first, last, how often. Bounded by pg_sluice.max_events.';

CREATE VIEW sluice.unavailable AS SELECT * FROM sluice._unavailable();
COMMENT ON VIEW sluice.unavailable IS 'Refusals that invite to come again, by what was not available and why. Counters since the ledger was made; sluice.refusals has the last 60 minutes by tenant and rule.';

CREATE VIEW sluice.metrics AS
  WITH status AS MATERIALIZED (SELECT * FROM sluice.status),
  server AS (
    SELECT m.name, '{}'::jsonb AS labels, m.value
      FROM status s, LATERAL (VALUES
        ('sluice_up', 1::double precision),
        ('sluice_enforcing', (s.mode OPERATOR(pg_catalog.=) 'enforce')::integer),
        ('sluice_policy_generation', coalesce(s.generation, 0)),
        ('sluice_epoch', s.epoch),
        ('sluice_alerts', pg_catalog.cardinality(s.alerts)),
        ('sluice_sessions', s.sessions),
        ('sluice_sessions_limit', s.session_limit),
        ('sluice_sessions_peak', s.peak_sessions),
        ('sluice_sessions_unknown', s.unknown_sessions),
        ('sluice_admin_sessions', s.admin_sessions),
        ('sluice_admin_sessions_limit', s.admin_limit),
        ('sluice_walsender_sessions', s.walsender_sessions),
        ('sluice_slots', s.slots),
        ('sluice_slots_free', s.slots_free),
        ('sluice_queued', s.queued),
        ('sluice_overdraft_in_use', s.overdraft_in_use),
        ('sluice_overdraft_limit', s.overdraft_limit),
        ('sluice_guard_beat_age_seconds', s.guard_beat_age_ms / 1000.0),
        ('sluice_publisher_beat_age_seconds', s.publisher_beat_age_ms / 1000.0),
        ('sluice_sessions_admitted_total', s.sessions_admitted),
        ('sluice_sessions_refused_total', s.sessions_refused),
        ('sluice_sessions_would_refuse_total', s.sessions_would_refuse),
        ('sluice_tickets_refused_total', s.tickets_refused),
        ('sluice_waits_expired_total', s.waits_expired),
        ('sluice_waits_cancelled_total', s.waits_cancelled),
        ('sluice_overdraft_granted_total', s.overdraft_granted),
        ('sluice_admitted_by_switch_total', s.admitted_by_switch),
        ('sluice_tenant_overflows_total', s.tenant_overflows),
        ('sluice_reclaimed_total', s.reclaimed),
        ('sluice_faults_total', s.faults),
        ('sluice_time_limit_cancels_total', s.time_limit_cancels),
        ('sluice_time_limit_terminates_total', s.time_limit_terminates),
        ('sluice_logins_terminated_total', s.logins_terminated),
        ('sluice_pushed_out_total', s.pushed_out),
        ('sluice_borrow_cancels_total', s.borrow_cancels),
        ('sluice_over_limit_grants_total', s.over_limit_grants),
        ('sluice_memory_bytes', s.memory_bytes),
        ('sluice_tenants', s.tenants_used),
        ('sluice_tenants_limit', s.max_tenants)) AS m(name, value)
  ),
  class AS MATERIALIZED (SELECT * FROM sluice.classes),
  classes AS (
    SELECT m.name, pg_catalog.jsonb_build_object('class', c.class) AS labels, m.value
      FROM class c, LATERAL (VALUES
        ('sluice_class_permits', c.permits::double precision),
        ('sluice_class_borrowed', c.borrowed),
        ('sluice_class_lent', c.lent),
        ('sluice_class_borrows_total', c.borrows),
        ('sluice_class_recalls_total', c.recalls),
        ('sluice_class_pushed_out_total', c.pushed_out),
        ('sluice_class_unreachable_total', c.unreachable),
        ('sluice_class_in_use', c.in_use),
        ('sluice_class_in_use_peak', c.peak_in_use),
        ('sluice_class_queued', c.queued),
        ('sluice_class_queued_peak', c.peak_queued),
        ('sluice_class_max_queue', c.max_queue),
        ('sluice_class_granted_total', c.granted),
        ('sluice_class_handed_over_total', c.handed_over),
        ('sluice_class_waited_total', c.waited),
        ('sluice_class_refused_total', c.refused),
        ('sluice_class_expired_total', c.expired),
        ('sluice_class_cancelled_total', c.cancelled),
        ('sluice_class_would_wait_total', c.would_wait),
        ('sluice_class_would_refuse_total', c.would_refuse),
        ('sluice_class_execution_seconds_total', c.execution_seconds),
        ('sluice_class_wait_seconds_sum', c.wait_ms_total / 1000.0),
        ('sluice_class_wait_seconds_count', (SELECT pg_catalog.sum(h) FROM pg_catalog.unnest(c.wait_histogram) h))) AS m(name, value)
  ),
  waits AS (
    SELECT 'sluice_class_wait_seconds_bucket' AS name,
           pg_catalog.jsonb_build_object('class', c.class, 'le',
             CASE WHEN h.i OPERATOR(pg_catalog.=) pg_catalog.cardinality(c.wait_histogram) THEN '+Inf'
                  ELSE pg_catalog.trim_scale(((1::bigint OPERATOR(pg_catalog.<<) (h.i - 1)::integer) / 1000.0)::numeric(12, 3))::text END) AS labels,
           (pg_catalog.sum(h.waits) OVER (PARTITION BY c.class, c.state ORDER BY h.i))::double precision AS value
      FROM class c, pg_catalog.unnest(c.wait_histogram) WITH ORDINALITY AS h(waits, i)
  ),
  unavailable AS (
    SELECT 'sluice_unavailable_total' AS name, pg_catalog.jsonb_build_object('source', u.source, 'reason', u.reason) AS labels,
           u.count::double precision AS value
      FROM sluice.unavailable u
  ),
  tenants AS (
    SELECT m.name, pg_catalog.jsonb_build_object('tenant', t.tenant, 'class', t.class) AS labels, m.value
      FROM sluice.tenants t, LATERAL (VALUES
        ('sluice_tenant_in_use', t.in_use::double precision),
        ('sluice_tenant_queued', t.queued),
        ('sluice_tenant_granted_total', t.granted),
        ('sluice_tenant_execution_seconds_total', t.execution_seconds),
        ('sluice_tenant_waited_total', t.waited),
        ('sluice_tenant_refused_total', t.refused),
        ('sluice_tenant_expired_total', t.expired),
        ('sluice_tenant_pushed_out_total', t.pushed_out)) AS m(name, value)
  )
  SELECT name, labels, value FROM server WHERE value IS NOT NULL
  UNION ALL SELECT name, labels, value FROM classes WHERE value IS NOT NULL
  UNION ALL SELECT name, labels, value FROM waits
  UNION ALL SELECT name, labels, value FROM unavailable
  UNION ALL SELECT name, labels, value FROM tenants WHERE value IS NOT NULL;
COMMENT ON VIEW sluice.metrics IS 'Everything countable under Prometheus names; a limit that does not exist has no row. Names ending in _total are counters since the ledger was made.';

-- Columns of the views -----------------------------------------------------------------------------------------------------

COMMENT ON COLUMN sluice.status.version IS 'Version of the library that runs.';
COMMENT ON COLUMN sluice.status.build IS 'Stamp of the build that made the ledger: version and a fingerprint of its layout.';
COMMENT ON COLUMN sluice.status.epoch IS 'Epoch of the ledger; grows with every start and crash restart.';
COMMENT ON COLUMN sluice.status.boot_id IS 'Random identity of this ledger.';
COMMENT ON COLUMN sluice.status.started_at IS 'When the ledger was made.';
COMMENT ON COLUMN sluice.status.in_recovery IS 'Whether this server is a standby.';
COMMENT ON COLUMN sluice.status.policy_database IS 'pg_sluice.database: where policies are published.';
COMMENT ON COLUMN sluice.status.label IS 'Label a policy must name: pg_sluice.label, or cluster_name.';
COMMENT ON COLUMN sluice.status.mode IS 'What decides now: off, shadow or enforce; the activation lowered by pg_sluice.enforcement.';
COMMENT ON COLUMN sluice.status.activation IS 'Mode of the deciding policy by activate(): shadow or enforce.';
COMMENT ON COLUMN sluice.status.enforcement IS 'The kill switch pg_sluice.enforcement: policy, shadow or off.';
COMMENT ON COLUMN sluice.status.generation IS 'Generation of the deciding policy; NULL: nothing is published.';
COMMENT ON COLUMN sluice.status.sessions IS 'Session permits in use by ordinary sessions.';
COMMENT ON COLUMN sluice.status.session_limit IS 'serverSessionPermits; NULL: none.';
COMMENT ON COLUMN sluice.status.peak_sessions IS 'Highest number of ordinary sessions at one time.';
COMMENT ON COLUMN sluice.status.unclaimed_guarantees IS 'Permits held back for tenants below their guaranteed sessions.';
COMMENT ON COLUMN sluice.status.admin_sessions IS 'Sessions of admin roles and superusers.';
COMMENT ON COLUMN sluice.status.admin_limit IS 'adminReserve; NULL: nothing is published.';
COMMENT ON COLUMN sluice.status.walsender_sessions IS 'Walsenders; recorded, never counted against a limit.';
COMMENT ON COLUMN sluice.status.unknown_sessions IS 'Sessions whose end nobody could prove (SESSION_UNKNOWN); they keep their permit.';
COMMENT ON COLUMN sluice.status.slots IS 'max_connections.';
COMMENT ON COLUMN sluice.status.slots_free IS 'Connection slots of PostgreSQL that are free.';
COMMENT ON COLUMN sluice.status.queued IS 'Transactions waiting for a permit, all classes.';
COMMENT ON COLUMN sluice.status.overdraft_in_use IS 'Overdraft permits in use to break lock cycles.';
COMMENT ON COLUMN sluice.status.overdraft_limit IS 'overdraft.max.';
COMMENT ON COLUMN sluice.status.guard_pid IS 'Process id of the guard worker; NULL: not running, which is an alert.';
COMMENT ON COLUMN sluice.status.guard_beat_age_ms IS 'Milliseconds since the guard''s last round; it makes ten a second.';
COMMENT ON COLUMN sluice.status.guard_starts IS 'How often the guard was started.';
COMMENT ON COLUMN sluice.status.guard_note IS 'What the guard complains of; NULL: nothing.';
COMMENT ON COLUMN sluice.status.publisher_pid IS 'Process id of the publisher worker; NULL: not running, which is an alert.';
COMMENT ON COLUMN sluice.status.publisher_beat_age_ms IS 'Milliseconds since the publisher''s last round; it makes one a second.';
COMMENT ON COLUMN sluice.status.publisher_starts IS 'How often the publisher was started.';
COMMENT ON COLUMN sluice.status.publisher_note IS 'Why the publisher has no (new) policy; NULL: all is well.';
COMMENT ON COLUMN sluice.status.alerts IS 'What somebody should look at, as sentences; empty: healthy.';
COMMENT ON COLUMN sluice.status.sessions_admitted IS 'Counter: sessions admitted.';
COMMENT ON COLUMN sluice.status.sessions_refused IS 'Counter: sessions refused.';
COMMENT ON COLUMN sluice.status.sessions_would_refuse IS 'Counter: sessions that shadow mode would have refused.';
COMMENT ON COLUMN sluice.status.tickets_refused IS 'Counter: transactions refused without waiting (full queue, unreachable deadline).';
COMMENT ON COLUMN sluice.status.waits_expired IS 'Counter: waits ended by the queue deadline.';
COMMENT ON COLUMN sluice.status.waits_cancelled IS 'Counter: waits ended by cancel, timeout, terminate or a vanished client.';
COMMENT ON COLUMN sluice.status.overdraft_granted IS 'Counter: overdraft permits granted.';
COMMENT ON COLUMN sluice.status.admitted_by_switch IS 'Counter: waiters admitted by the kill switch or a change to shadow.';
COMMENT ON COLUMN sluice.status.tenant_overflows IS 'Counter: newcomers that found the tenant table full.';
COMMENT ON COLUMN sluice.status.reclaimed IS 'Counter: sessions reclaimed on proof that their process is gone; each is a bug.';
COMMENT ON COLUMN sluice.status.faults IS 'Counter: broken invariants and unusable policies, answered by pg_sluice.on_fault.';
COMMENT ON COLUMN sluice.status.time_limit_cancels IS 'Counter: transactions cancelled at their time limit.';
COMMENT ON COLUMN sluice.status.time_limit_terminates IS 'Counter: sessions terminated because the cancel did not help.';
COMMENT ON COLUMN sluice.status.logins_terminated IS 'Counter: logins in progress ended by the login guard.';
COMMENT ON COLUMN sluice.status.over_limit_grants IS 'Counter: permits granted over a limit while enforcing; always 0.';
COMMENT ON COLUMN sluice.status.memory_bytes IS 'Size of the ledger in shared memory, bytes.';
COMMENT ON COLUMN sluice.status.session_records IS 'Session and ticket records: one per possible backend.';
COMMENT ON COLUMN sluice.status.max_tenants IS 'pg_sluice.max_tenants.';
COMMENT ON COLUMN sluice.status.tenants_used IS 'Tenants in the table.';
COMMENT ON COLUMN sluice.status.max_classes IS 'pg_sluice.max_classes.';
COMMENT ON COLUMN sluice.status.max_events IS 'pg_sluice.max_events.';
COMMENT ON COLUMN sluice.status.max_receipts IS 'pg_sluice.max_receipts.';
COMMENT ON COLUMN sluice.status.max_refusal_cells IS 'pg_sluice.max_refusal_cells.';
COMMENT ON COLUMN sluice.status.pushed_out IS 'Counter: waiting transactions that gave up their place in a full queue to another tenant.';
COMMENT ON COLUMN sluice.status.borrow_cancels IS 'Counter: transactions cancelled because their borrowed permit was needed back.';

COMMENT ON COLUMN sluice.classes.class IS 'Name of the execution class; default while nothing is published.';
COMMENT ON COLUMN sluice.classes.state IS 'active, or draining: no longer in the policy, waiting for its last permits.';
COMMENT ON COLUMN sluice.classes.permits IS 'Permits of the class; NULL: no limit.';
COMMENT ON COLUMN sluice.classes.in_use IS 'Permits in use.';
COMMENT ON COLUMN sluice.classes.free IS 'Permits free; negative while a lowered limit drains or shadow mode is over it; NULL: no limit.';
COMMENT ON COLUMN sluice.classes.queued IS 'Transactions waiting in the class.';
COMMENT ON COLUMN sluice.classes.max_queue IS 'maxQueue; NULL: no limit.';
COMMENT ON COLUMN sluice.classes.peak_in_use IS 'Most permits in use at one time.';
COMMENT ON COLUMN sluice.classes.peak_queued IS 'Most transactions queued at one time.';
COMMENT ON COLUMN sluice.classes.queue_deadline_ms IS 'queueDeadlineMs: longest wait, milliseconds.';
COMMENT ON COLUMN sluice.classes.transaction_time_limit_ms IS 'transactionTimeLimitMs; NULL: none.';
COMMENT ON COLUMN sluice.classes.granted IS 'Counter: transactions that got a permit.';
COMMENT ON COLUMN sluice.classes.handed_over IS 'Counter: permits handed from one transaction to a waiting one.';
COMMENT ON COLUMN sluice.classes.waited IS 'Counter: transactions that had to wait.';
COMMENT ON COLUMN sluice.classes.refused IS 'Counter: transactions refused without waiting.';
COMMENT ON COLUMN sluice.classes.expired IS 'Counter: waits ended by the queue deadline.';
COMMENT ON COLUMN sluice.classes.cancelled IS 'Counter: waits ended by cancel, timeout, terminate or a vanished client.';
COMMENT ON COLUMN sluice.classes.would_wait IS 'Counter: transactions that shadow mode would have queued.';
COMMENT ON COLUMN sluice.classes.would_refuse IS 'Counter: transactions that shadow mode would have refused for a full queue.';
COMMENT ON COLUMN sluice.classes.execution_seconds IS 'Permit-seconds held, running transactions included.';
COMMENT ON COLUMN sluice.classes.wait_ms_total IS 'Milliseconds waited, sum over ended waits.';
COMMENT ON COLUMN sluice.classes.wait_p50_ms IS 'Half of the waits stayed below this, milliseconds; upper bound of a power of two; NULL: nobody waited.';
COMMENT ON COLUMN sluice.classes.wait_p99_ms IS '99 % of the waits stayed below this, milliseconds; upper bound of a power of two; NULL: nobody waited.';
COMMENT ON COLUMN sluice.classes.wait_histogram IS 'Waits by length: element i (from 1) counts those below 2^(i-1) ms, the last one is open.';
COMMENT ON COLUMN sluice.classes.borrowed IS 'Permits it holds beyond its own: borrowed and not yet repaid.';
COMMENT ON COLUMN sluice.classes.lent IS 'Permits of its own that other classes hold.';
COMMENT ON COLUMN sluice.classes.borrowed_from IS 'From whom, as class=permits; empty: nothing is owed.';
COMMENT ON COLUMN sluice.classes.borrows IS 'Counter: permits borrowed.';
COMMENT ON COLUMN sluice.classes.recalls IS 'Counter: lent permits that came back while the class queued.';
COMMENT ON COLUMN sluice.classes.pushed_out IS 'Counter: waiting transactions that gave up their place in the full queue to a tenant with fewer.';
COMMENT ON COLUMN sluice.classes.unreachable IS 'Counter: transactions refused at once because they would not have met their deadline; part of refused.';
COMMENT ON COLUMN sluice.classes.aging_ms IS 'agingMs, milliseconds.';

COMMENT ON COLUMN sluice.tenants.tenant IS 'Name of the tenant; * is the row that newcomers share while the table is full.';
COMMENT ON COLUMN sluice.tenants.class IS 'Execution class.';
COMMENT ON COLUMN sluice.tenants.rule IS 'Pattern of the tenants rule that governs it.';
COMMENT ON COLUMN sluice.tenants.weight IS 'Weight in the fair queue.';
COMMENT ON COLUMN sluice.tenants.in_use IS 'Permits the tenant holds in the class.';
COMMENT ON COLUMN sluice.tenants.max_inflight IS 'maxInflight: permits it may hold per class; NULL: no limit.';
COMMENT ON COLUMN sluice.tenants.queued IS 'Transactions it has waiting in the class.';
COMMENT ON COLUMN sluice.tenants.peak_queued IS 'Most it had waiting at one time.';
COMMENT ON COLUMN sluice.tenants.sessions IS 'Sessions of the tenant, all classes.';
COMMENT ON COLUMN sluice.tenants.max_sessions IS 'maxSessions; NULL: no limit.';
COMMENT ON COLUMN sluice.tenants.guaranteed_sessions IS 'Session permits held back for it.';
COMMENT ON COLUMN sluice.tenants.peak_sessions IS 'Most sessions at one time.';
COMMENT ON COLUMN sluice.tenants.granted IS 'Counter: transactions that got a permit.';
COMMENT ON COLUMN sluice.tenants.execution_seconds IS 'Permit-seconds held, running transactions included.';
COMMENT ON COLUMN sluice.tenants.waited IS 'Counter: transactions that had to wait.';
COMMENT ON COLUMN sluice.tenants.refused IS 'Counter: transactions refused without waiting.';
COMMENT ON COLUMN sluice.tenants.expired IS 'Counter: waits ended by the queue deadline.';
COMMENT ON COLUMN sluice.tenants.cancelled IS 'Counter: waits ended by cancel, timeout, terminate or a vanished client.';
COMMENT ON COLUMN sluice.tenants.would_wait IS 'Counter: transactions that shadow mode would have queued.';
COMMENT ON COLUMN sluice.tenants.session_refusals IS 'Counter: sessions refused, all classes.';
COMMENT ON COLUMN sluice.tenants.would_refuse_sessions IS 'Counter: sessions that shadow mode would have refused, all classes.';
COMMENT ON COLUMN sluice.tenants.last_used IS 'When the tenant was last looked up.';
COMMENT ON COLUMN sluice.tenants.pushed_out IS 'Counter: waiting transactions that gave up their place in a full queue to a tenant with fewer.';
COMMENT ON COLUMN sluice.tenants.mean_hold_ms IS 'How long its transactions hold their permit, a decaying mean, milliseconds; NULL: none has ended while others waited.';
COMMENT ON COLUMN sluice.tenants.expected_wait_ms IS 'Wait that one more transaction has to expect, milliseconds; NULL: too little is known yet.';

COMMENT ON COLUMN sluice.sessions.slot IS 'Index of the backend in PostgreSQL''s process array.';
COMMENT ON COLUMN sluice.sessions.pid IS 'Process id.';
COMMENT ON COLUMN sluice.sessions.role IS 'Login role, as authenticated.';
COMMENT ON COLUMN sluice.sessions.database IS 'Database.';
COMMENT ON COLUMN sluice.sessions.tenant IS 'Tenant the session counts for.';
COMMENT ON COLUMN sluice.sessions.class IS 'Execution class by assignment.';
COMMENT ON COLUMN sluice.sessions.kind IS 'ordinary, admin role, superuser or walsender.';
COMMENT ON COLUMN sluice.sessions.admin_role IS 'Name in adminRoles; NULL: none.';
COMMENT ON COLUMN sluice.sessions.state IS 'SESSION_RESERVED, CONNECTING, OPEN_IDLE, OPEN_BUSY, CLOSING or SESSION_UNKNOWN.';
COMMENT ON COLUMN sluice.sessions.counted IS 'Whether it holds a session permit; false: opened while enforcement was off.';
COMMENT ON COLUMN sluice.sessions.backend_start IS 'Start of the process, as in pg_stat_activity.';
COMMENT ON COLUMN sluice.sessions.opened_at IS 'When the permit was taken.';
COMMENT ON COLUMN sluice.sessions.idle_ms IS 'Milliseconds idle; NULL: not idle.';
COMMENT ON COLUMN sluice.sessions.generation IS 'Generation of the policy it was admitted under; 0: none was published.';
COMMENT ON COLUMN sluice.sessions.epoch IS 'Epoch of the ledger it was admitted in.';
COMMENT ON COLUMN sluice.sessions.connection_generation IS 'How often this slot has been used.';

COMMENT ON COLUMN sluice.tickets.pid IS 'Process id.';
COMMENT ON COLUMN sluice.tickets.state IS 'QUEUED, EXECUTION_GRANTED, CHECKING_OUT or IN_TRANSACTION.';
COMMENT ON COLUMN sluice.tickets.tenant IS 'Tenant.';
COMMENT ON COLUMN sluice.tickets.class IS 'Execution class it runs or waits in.';
COMMENT ON COLUMN sluice.tickets.held_ms IS 'Milliseconds the permit has been held; NULL: waits.';
COMMENT ON COLUMN sluice.tickets.waited_ms IS 'Milliseconds waited so far, or before it was granted, earlier attempts under the same id included; NULL: never waited.';
COMMENT ON COLUMN sluice.tickets.queue_position IS 'Position in service order as far as it can be told, 1 is next; NULL: does not wait.';
COMMENT ON COLUMN sluice.tickets.blocked_by IS 'Path of the rule it waits for.';
COMMENT ON COLUMN sluice.tickets.deadline_ms IS 'Milliseconds left until its queue deadline.';
COMMENT ON COLUMN sluice.tickets.time_limit_ms IS 'Transaction time limit, milliseconds; NULL: none.';
COMMENT ON COLUMN sluice.tickets.source IS 'own class, borrowed, overdraft, or switch (admitted by the kill switch); NULL: waits.';
COMMENT ON COLUMN sluice.tickets.blocks_holder IS 'The guard found that it blocks a transaction that holds a permit; NULL: does not wait.';
COMMENT ON COLUMN sluice.tickets.committing IS 'In COMMIT: nobody signals it any more.';
COMMENT ON COLUMN sluice.tickets.expiring IS 'Over its time limit: cancelled, then terminated.';
COMMENT ON COLUMN sluice.tickets.granted_at IS 'When the permit was taken.';
COMMENT ON COLUMN sluice.tickets.ticket IS 'Identity of the ticket, as in the DETAIL of a refusal; NULL: it never waited and was given none.';
COMMENT ON COLUMN sluice.tickets.generation IS 'Generation of the policy it was decided under.';
COMMENT ON COLUMN sluice.tickets.slot IS 'Index of the backend in PostgreSQL''s process array.';
COMMENT ON COLUMN sluice.tickets.role IS 'Login role.';
COMMENT ON COLUMN sluice.tickets.database IS 'Database.';
COMMENT ON COLUMN sluice.tickets.application_name IS 'From pg_stat_activity.';
COMMENT ON COLUMN sluice.tickets.client_addr IS 'From pg_stat_activity.';
COMMENT ON COLUMN sluice.tickets.activity IS 'state of pg_stat_activity.';
COMMENT ON COLUMN sluice.tickets.wait_event_type IS 'From pg_stat_activity.';
COMMENT ON COLUMN sluice.tickets.wait_event IS 'From pg_stat_activity; Extension: waits for its permit.';
COMMENT ON COLUMN sluice.tickets.query_id IS 'From pg_stat_activity; needs compute_query_id.';
COMMENT ON COLUMN sluice.tickets.query IS 'From pg_stat_activity.';
COMMENT ON COLUMN sluice.tickets.expected_wait_ms IS 'Wait it still has to expect, milliseconds; NULL: does not wait, or too little is known yet.';
COMMENT ON COLUMN sluice.tickets.borrowed_from IS 'Class whose permit it holds; NULL: not a borrowed one.';
COMMENT ON COLUMN sluice.tickets.named IS 'Whether the session gave the ticket its id (pg_sluice.ticket).';

COMMENT ON COLUMN sluice.refusals.minute IS 'Start of the minute.';
COMMENT ON COLUMN sluice.refusals.tenant IS 'Tenant.';
COMMENT ON COLUMN sluice.refusals.class IS 'Execution class; NULL: a session was refused.';
COMMENT ON COLUMN sluice.refusals.reason IS 'reason of the DETAIL line, such as queue_full.';
COMMENT ON COLUMN sluice.refusals.rule IS 'Path of the rule in the deciding policy; NULL: no rule.';
COMMENT ON COLUMN sluice.refusals.would IS 'Counted in shadow: nobody was refused.';
COMMENT ON COLUMN sluice.refusals.count IS 'How many.';

COMMENT ON COLUMN sluice.events.event IS 'What happened, such as execution_refused or policy_applied.';
COMMENT ON COLUMN sluice.events.reason IS 'reason of the DETAIL line; NULL: none.';
COMMENT ON COLUMN sluice.events.rule IS 'Path of the rule in the deciding policy; NULL: none.';
COMMENT ON COLUMN sluice.events.class IS 'Execution class; NULL: none.';
COMMENT ON COLUMN sluice.events.tenant IS 'Tenant; NULL: none.';
COMMENT ON COLUMN sluice.events.database IS 'Database; NULL: none.';
COMMENT ON COLUMN sluice.events.generation IS 'Generation of the policy that decided.';
COMMENT ON COLUMN sluice.events.first_at IS 'When it first happened.';
COMMENT ON COLUMN sluice.events.last_at IS 'When it last happened.';
COMMENT ON COLUMN sluice.events.count IS 'How often.';
COMMENT ON COLUMN sluice.events.ticket IS 'Ticket concerned, the newest of them, as in the DETAIL of a refusal; NULL: none.';

COMMENT ON COLUMN sluice.unavailable.source IS 'What was not available: sessions, or the permits of a class.';
COMMENT ON COLUMN sluice.unavailable.reason IS 'reason of the DETAIL line.';
COMMENT ON COLUMN sluice.unavailable.count IS 'Counter: how often.';

COMMENT ON COLUMN sluice.metrics.name IS 'Name of the metric; _total: a counter since the ledger was made, else a gauge.';
COMMENT ON COLUMN sluice.metrics.labels IS 'Labels: class, tenant, source, reason, le (upper bound of a bucket, seconds).';
COMMENT ON COLUMN sluice.metrics.value IS 'Value; seconds and bytes where the name says so.';
-- Privileges --------------------------------------------------------------------------------------------------------------

REVOKE ALL ON SCHEMA sluice FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA sluice FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA sluice FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sluice FROM PUBLIC;

-- Monitoring reads everything and changes nothing. A view calls its function as whoever reads it.
GRANT USAGE ON SCHEMA sluice TO pg_monitor;
GRANT SELECT ON ALL TABLES IN SCHEMA sluice TO pg_monitor;
GRANT EXECUTE ON FUNCTION sluice._status(), sluice._classes(), sluice._tenants(), sluice._sessions(), sluice._tickets(),
  sluice._refusals(), sluice._unavailable(), sluice._events(), sluice.validate(jsonb), sluice.explain(text, text, text), sluice.reconcile()
  TO pg_monitor;
