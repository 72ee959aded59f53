-- Which statement takes a permit, and that each gives it back, also when it fails. The table is docs/statements.md.
select current_user as super \gset
\set SHOW_CONTEXT never
-- How many permits the statement before took; reading the counter is a statement that takes one itself.
\set count 'select regress_granted() - :granted - 1 as took, regress_granted() as granted \\gset \\echo permits taken: :took'
set client_min_messages = warning;
create schema regress_app authorization regress_app;
select regress_publish() as generation \gset
select count(*) > 0 as printed from sluice.activate(:generation);
call regress_settle(0);
\c - regress_app
set client_min_messages = error;
select regress_granted() as granted \gset
select 1 as one;
:count
-- what never waits
show work_mem;
:count
set work_mem = '8MB';
:count
reset work_mem;
:count
explain (costs off) select 1;
:count
prepare p as select 1 as one;
:count
listen l;
:count
unlisten l;
:count
notify l;
:count
discard plans;
:count
begin;
:count
savepoint s;
rollback to s;
release s;
commit;
:count
;
:count
\set VERBOSITY sqlstate
checkpoint;
\set VERBOSITY default
:count
-- what takes one
execute p;
:count
deallocate p;
:count
\o /dev/null
explain (analyze, costs off, timing off, summary off) select 1;
\o
:count
create table t (a int);
:count
insert into t select generate_series(1, 10);
:count
copy t to stdout;
:count
copy t (a) from stdin;
11
\.
:count
create index on t (a);
:count
create index concurrently on t (a);
:count
analyze t;
:count
vacuum t;
:count
reindex table t;
:count
create materialized view m as select * from t;
:count
refresh materialized view m;
:count
do $$ begin perform 1; end $$;
:count
create procedure commits() language plpgsql as $$ begin for i in 1 .. 5 loop insert into t values (i); commit; end loop; end $$;
:count
call commits();
:count
call commits(); call commits();
:count
create table c as select * from t;
:count
truncate c;
:count
begin; lock table c; commit;
:count
-- one for a whole transaction
begin; select 1 as one; select 2 as two; insert into t values (1); commit;
:count
begin;
declare k cursor for select * from t order by a;
fetch 1 from k;
close k;
commit;
:count
-- a failing one gives it back
select 1 / 0;
:count
insert into t values ('x');
:count
vacuum no_such_table;
:count
create index concurrently on t (no_such_column);
:count
do $$ begin perform 1 / 0; end $$;
:count
do $$ begin for i in 1 .. 100 loop begin perform 1 / 0; exception when others then null; end; end loop; end $$;
:count
begin; set local statement_timeout = 20; select pg_sleep(600); rollback;
:count
begin; select 1 / 0; select 1; rollback;
:count
begin; savepoint s; select 1 / 0; rollback to s; select 1 as one; commit;
:count
-- two-phase: back at PREPARE TRANSACTION; COMMIT PREPARED needs none
begin; insert into t values (1); prepare transaction 'regress';
:count
commit prepared 'regress';
:count
begin; insert into t values (1); prepare transaction 'regress';
rollback prepared 'regress';
:count
\c - :super
call regress_settle(0);
select class, in_use, queued from sluice.classes order by class;
set client_min_messages = warning;
drop owned by regress_app;
select regress_shadow();
select * from sluice.reconcile();
