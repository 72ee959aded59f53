-- What every spec starts from. The tester's own connection and whoever watches stay in the class "wide"; the sessions under
-- test declare one of the narrow ones. Their tenants come from a setting, as one role serves them all.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION pg_sluice;
CREATE ROLE iso_tenant LOGIN IN ROLE pg_monitor;
GRANT CREATE ON SCHEMA public TO iso_tenant;

-- Waits until the class is as described, for minutes if it must be; says what it is then.
CREATE FUNCTION await(class text, held bigint, waiting bigint) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  now_held bigint;
  now_waiting bigint;
BEGIN
  FOR attempt IN 1 .. 18000 LOOP
    SELECT c.in_use, c.queued INTO now_held, now_waiting FROM sluice.classes c WHERE c.class = await.class;
    EXIT WHEN now_held = held AND now_waiting = waiting;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN format('%s held, %s waiting', now_held, now_waiting);
END $$;

CREATE FUNCTION discrepancies() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM sluice.reconcile()';

-- The tester asks this function whether a session waits, and knows of locks alone. Ours knows of queues as well.
ALTER FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(int, int[]) RENAME TO pg_isolation_test_session_waits_for_lock;
CREATE FUNCTION pg_catalog.pg_isolation_test_session_is_blocked(int, int[]) RETURNS bool LANGUAGE sql SECURITY DEFINER AS $$
  SELECT pg_catalog.pg_isolation_test_session_waits_for_lock($1, $2)
    OR EXISTS (SELECT FROM sluice.tickets WHERE pid = $1 AND state = 'QUEUED')
$$;

-- The backend of a session of the running spec.
CREATE FUNCTION pid_of(session text) RETURNS int LANGUAGE sql AS
  $$SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'isolation/%/' || session$$;

SELECT count(*) > 0 AS published FROM sluice.publish($policy${
  "schema": "dbAdmissionPolicy.v1", "database": "isolation/write", "generation": 1, "serverSessionPermits": 20,
  "adminReserve": 2, "loginHeadroom": 3, "fairness": "weighted-deficit-v2", "tenantKey": "setting",
  "declare": {"classSetting": "pg_sluice.class", "tenantSetting": "pg_sluice.tenant", "trustedRoles": ["iso_tenant"]},
  "defaultClass": "wide",
  "executionClasses": {
    "wide": {"permits": 20, "maxQueue": 20, "mayEnter": ["narrow", "brief", "pair", "tiny"]},
    "narrow": {"permits": 1, "maxQueue": 20, "queueDeadlineMs": 600000},
    "brief": {"permits": 1, "maxQueue": 20, "queueDeadlineMs": 300},
    "pair": {"permits": 2, "maxQueue": 20, "queueDeadlineMs": 600000},
    "tiny": {"permits": 1, "maxQueue": 1, "queueDeadlineMs": 600000},
    "closed": {"permits": 1, "maxQueue": 20}
  },
  "tenants": {"*": {"weight": 1}, "small": {"weight": 1, "maxInflight": 1}}
}$policy$::jsonb);
SELECT count(*) > 0 AS activated FROM sluice.activate(generation => 1, mode => 'enforce');
