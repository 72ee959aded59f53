-- sluice.activate(): shadow to enforce and back, what it prints and refuses.
select current_user as super \gset
\set SHOW_CONTEXT never
select regress_publish() as first \gset
select mode, generation = :first as deciding from sluice.status;
-- wrong arguments
select * from sluice.activate(null);
\echo :SQLSTATE
select * from sluice.activate(:first, 'canary');
\echo :SQLSTATE
select * from sluice.activate(:first, percent => 101);
\echo :SQLSTATE
select * from sluice.activate(:first, percent => 5);
\echo :SQLSTATE
select * from sluice.activate(:first, scope => 'read-only');
\echo :SQLSTATE
select * from sluice.activate(:first, over_limit => 'kill');
\echo :SQLSTATE
select * from sluice.activate(1000000);
\echo :SQLSTATE
-- what it prints
select kind, name, rule, "limit", over from sluice.activate(:first);
select mode, activation, generation = :first as deciding from sluice.status;
select state, activated_by = :'super' as by_me, activated_at is not null as activated from sluice.policies where generation = :first;
-- a newer generation does not disturb the one that is enforced
select regress_publish() as second \gset
select mode, generation = :first as deciding from sluice.status;
select generation = :second as newer, state from sluice.policies where generation >= :first order by generation;
-- until it is activated; the older one is retired and does not come back
select count(*) > 0 as printed from sluice.activate(:second);
select mode, generation = :second as deciding from sluice.status;
select generation = :second as newer, state from sluice.policies where generation >= :first order by generation;
do $$ begin perform sluice.activate((select max(generation) from sluice.policies where state = 'retired'));
  exception when object_not_in_prerequisite_state then raise notice '% %', sqlstate, regexp_replace(sqlerrm, '\d+', 'N'); end $$;
-- activation takes effect at COMMIT
begin;
select count(*) > 0 as printed from sluice.activate(:second, 'shadow');
select mode from sluice.status;
rollback;
select mode, generation = :second as deciding from sluice.status;
begin;
select regress_publish() as third \gset
savepoint s;
select count(*) > 0 as printed from sluice.activate(:third);
rollback to s;
commit;
select mode, generation = :second as deciding from sluice.status;
begin;
select regress_publish() as fourth \gset
select count(*) > 0 as printed from sluice.activate(:fourth);
commit;
select mode, generation = :fourth as deciding from sluice.status;
-- back to shadow: the newest that was published decides
select count(*) > 0 as printed from sluice.activate(:fourth, 'shadow');
select mode, generation = :fourth as deciding from sluice.status;
-- over a limit: this very session is one too many
select regress_publish('{"serverSessionPermits": 0, "tenants": {"regress_deployer": {"maxSessions": 0}}}') as tight \gset
\c - regress_deployer
set client_min_messages = warning;
do $$ begin perform sluice.activate((select max(generation) from sluice.policies));
  exception when object_not_in_prerequisite_state then
    declare detail text; hint text;
    begin
      get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
      raise warning '% %', sqlstate, regexp_replace(sqlerrm, 'generation \d+', 'generation N');
      raise warning '%', detail;
      raise warning '%', hint;
    end;
end $$;
select mode from sluice.status;
select kind, name, rule, now, "limit", over from sluice.activate(:tight, over_limit => 'drain') where over;
-- the session that was open stays
select mode, sessions, session_limit from sluice.status;
select count(*) > 0 as printed from sluice.activate(:tight, 'shadow');
select mode from sluice.status;
\c - :super
select regress_publish() is not null as published;
select what, nullif(who, :'super') as other_role, regexp_replace(why, 'generation \d+', 'generation N') as why from sluice.changes
 where what = 'activate' and generation >= :first order by id;
-- a second active row, made by hand, is refused
update sluice.policies set state = 'active' where generation in (:second, :third);
select regress_shadow();
select * from sluice.reconcile();
