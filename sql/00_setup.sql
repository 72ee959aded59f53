-- The extension, the roles and the helpers that the other tests use.
set client_min_messages = warning;
create extension pg_sluice;
select extname, extversion, nspname from pg_extension join pg_namespace n on n.oid = extnamespace where extname = 'pg_sluice';
create role regress_app login;
create role regress_batch login;
create role regress_monitor login in role pg_monitor;
create role regress_viewer login in role pg_monitor;
create role regress_deployer login in role pg_monitor;
grant execute on function sluice.publish(jsonb), sluice.activate(bigint, text, integer, text, text) to regress_deployer;

-- The smallest policy, with whatever the test adds to it.
create function regress_policy(extra jsonb default '{}') returns jsonb language sql immutable as $$
  select '{"schema": "dbAdmissionPolicy.v1", "database": "regress/write", "serverSessionPermits": 20, "adminReserve": 4,
           "adminRoles": {"regress_monitor": {"guaranteedSessions": 1}}, "defaultClass": "online",
           "executionClasses": {"online": {"permits": 10, "maxQueue": 20, "mayEnter": ["batch"]},
                                "batch": {"permits": 2, "maxQueue": 4}},
           "assign": [{"role": "regress_batch", "class": "batch"}]}'::jsonb || extra
$$;

-- Publishes and returns nothing that changes from run to run.
create function regress_publish(extra jsonb default '{}') returns bigint language sql as $$
  select generation from sluice.publish(regress_policy(extra))
$$;

-- Puts back into shadow whatever is enforced.
create function regress_shadow() returns void language sql as $$
  select sluice.activate(generation, 'shadow') from sluice.policies where state = 'active'
$$;

-- Permits that the class of the ordinary tests has granted so far.
create function regress_granted(in_class text default 'online') returns bigint language sql volatile security definer set search_path = pg_catalog as $$
  select granted from sluice.classes where class = in_class
$$;

-- Waits until sessions that were left behind by \c are gone.
create procedure regress_settle(wanted bigint) language plpgsql as $$
begin
  for i in 1 .. 3600 loop
    if (select s.sessions from sluice.status s) = wanted then return; end if;
    perform pg_sleep(0.05);
  end loop;
  raise exception 'there are % sessions, not %', (select s.sessions from sluice.status s), wanted;
end
$$;

-- Waits for the publisher: the server was started before its database was made, and it looks for that every few seconds.
create procedure regress_await_publisher() language plpgsql as $$
begin
  for i in 1 .. 1800 loop
    if exists (select from sluice.status where publisher_pid is not null and publisher_note is null)
       and exists (select from sluice.changes where what = 'boot') then return; end if;
    commit;
    perform pg_sleep(0.1);
  end loop;
  raise exception 'the publisher says: %', (select publisher_note from sluice.status);
end
$$;

-- Nothing is published: everything is admitted and counted.
select mode, activation, enforcement, generation, session_limit, admin_limit, in_recovery, policy_database, label from sluice.status;
select class, state, permits, max_queue, free from sluice.classes;
select * from sluice.reconcile();
