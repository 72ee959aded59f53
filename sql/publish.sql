-- sluice.publish(): generations, refusals, transactions and savepoints.
\set SHOW_CONTEXT never
select coalesce(max(generation), 0) as base from sluice.policies \gset
-- the generation is assigned; the newest decides, in shadow
select generation - :base as generation, mode, warnings from sluice.publish(regress_policy());
select generation - :base as generation, mode from sluice.status;
select generation - :base as generation, state, document = regress_policy() as as_sent, published_by = :'super' as by_me, activated_by
  from sluice.policies where generation > :base;
-- an explicit generation must be newer
select generation - :base as generation from sluice.publish(regress_policy(jsonb_build_object('generation', :base + 5)));
do $$ begin perform sluice.publish(regress_policy('{"generation": 1}')); exception when invalid_parameter_value then
  raise notice '% %', sqlstate, regexp_replace(sqlerrm, '\d+$', 'N'); end $$;
select generation - :base as generation from sluice.status;
-- case: the sum does not fit; refused with the arithmetic, what was in force stays
select * from sluice.publish(regress_policy('{"serverSessionPermits": 60, "adminReserve": 12, "surprise": 1}'));
\echo :SQLSTATE
select generation - :base as generation, mode from sluice.status;
select * from sluice.publish(null);
\echo :SQLSTATE
-- a rolled back publish changes nothing
begin;
select generation - :base as generation from sluice.publish(regress_policy());
select generation - :base as in_force_before_commit from sluice.status;
rollback;
select generation - :base as generation from sluice.status;
select count(*) from sluice.policies where generation > :base;
-- nor does one in a savepoint that is rolled back; the one before it counts
begin;
select generation - :base as generation from sluice.publish(regress_policy());
savepoint s;
select generation - :base as generation from sluice.publish(regress_policy());
rollback to s;
commit;
select generation - :base as generation from sluice.status;
begin;
savepoint s;
select generation - :base as generation from sluice.publish(regress_policy());
rollback to s;
select 1 as one;
commit;
select generation - :base as generation from sluice.status;
-- a released savepoint belongs to its transaction, for better or worse
begin;
savepoint s;
select generation - :base as generation from sluice.publish(regress_policy());
release s;
commit;
select generation - :base as generation from sluice.status;
begin;
savepoint s1;
savepoint s2;
select generation - :base as generation from sluice.publish(regress_policy());
release s2;
rollback to s1;
commit;
select generation - :base as generation from sluice.status;
-- caught in PL/pgSQL
do $$ begin
  begin
    perform sluice.publish(regress_policy());
    raise exception 'no';
  exception when raise_exception then null;
  end;
end $$;
select generation - :base as generation from sluice.status;
-- a prepared transaction decides when it is committed: the publisher brings it
begin;
select generation - :base as generation from sluice.publish(regress_policy());
prepare transaction 'regress';
select generation - :base as generation from sluice.status;
rollback prepared 'regress';
select generation - :base as generation from sluice.status;
-- where publishing is refused
begin isolation level repeatable read;
select * from sluice.publish(regress_policy());
\echo :SQLSTATE
rollback;
begin read only;
select * from sluice.publish(regress_policy());
\echo :SQLSTATE
rollback;
create database regress_elsewhere;
\c regress_elsewhere
set client_min_messages = warning;
create extension pg_sluice;
select * from sluice.publish('{}');
\echo :SQLSTATE
select * from sluice.activate(1);
\echo :SQLSTATE
select count(*) from sluice.status;
\c regression
drop database regress_elsewhere;
-- the log of changes
select what, who = :'super' as by_me, generation - :base as generation, replace(why, generation::text, 'N') as why, diff <> '{}' as differs
  from sluice.changes where generation > :base order by id;
select diff from sluice.changes order by id desc limit 1;
select regress_publish('{"adminReserve": 5, "executionClasses": {"online": {"permits": 11, "maxQueue": 20}, "batch": {"permits": 2, "maxQueue": 4}}}') is not null as published;
select diff from sluice.changes order by id desc limit 1;
-- rows that were damaged by hand keep nobody from publishing and activating a good one
select regress_publish() as good \gset
select count(*) > 0 as printed from sluice.activate(:good);
begin;
update sluice.policies set document = (repeat('[', 60) || repeat(']', 60))::jsonb where generation = :good;
do $$ begin perform sluice.activate((select generation from sluice.policies where state = 'active'));
  exception when others then raise notice '% %', sqlstate, regexp_replace(sqlerrm, '\d+', 'N'); end $$;
set client_min_messages = error;
select regress_publish() as better \gset
reset client_min_messages;
select count(*) > 0 as printed from sluice.activate(:better);
commit;
select mode, generation = :better as deciding from sluice.status;
select regress_shadow();
select * from sluice.reconcile();
