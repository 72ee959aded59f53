-- sluice.explain(): the same answers that a login and a transaction would get.
\set SHOW_CONTEXT never
select regress_publish('{"tenants": {"*": {"maxInflight": 3, "maxSessions": 6},
                                     "regress_app": {"weight": 4, "maxSessions": 8, "guaranteedSessions": 2}},
                         "roleCaps": {"regress_app": {"maxSessions": 7}}, "databaseCaps": {"regression": {"maxSessions": 15}}}') as generation \gset
call regress_settle(0);
select step, outcome, rule, used, "limit", regexp_replace(note, 'generation \d+', 'generation N') as note
  from sluice.explain('regress_app', 'regression');
select step, outcome, rule, used, "limit" from sluice.explain('regress_batch', 'postgres');
-- a declared class: allowed, not listed, unknown
select step, outcome, rule, note from sluice.explain('regress_app', 'regression', 'batch') where step in ('class', 'declared class', 'queue');
select step, outcome, rule, note from sluice.explain('regress_batch', 'regression', 'online') where step = 'declared class';
select step, outcome, rule, note from sluice.explain('regress_app', 'regression', 'nonsense') where step = 'declared class';
-- administrators
select step, outcome, rule, used, "limit" from sluice.explain('regress_monitor', 'regression');
select step, outcome, rule, used, "limit" from sluice.explain(current_user, 'regression') where step <> 'tenant';
-- a limit that is reached
select regress_publish('{"serverSessionPermits": 0, "executionClasses": {"online": {"permits": 0, "maxQueue": 0}}, "assign": []}') as closed \gset
select step, outcome, rule, used, "limit" from sluice.explain('regress_app', 'regression') where outcome in ('refused', 'queues');
select step, outcome, note from sluice.explain('regress_app', 'regression') where step in ('mode', 'login', 'transaction') and step <> 'mode';
select count(*) > 0 as printed from sluice.activate(:closed);
select step, outcome, note from sluice.explain('regress_app', 'regression') where step in ('login', 'transaction');
select regress_shadow();
-- errors
select * from sluice.explain('no_such_role', 'regression');
\echo :SQLSTATE
select * from sluice.explain('regress_app', 'no_such_database');
\echo :SQLSTATE
select * from sluice.explain(null, 'regression');
\echo :SQLSTATE
select * from sluice.explain('regress_app', null);
\echo :SQLSTATE
-- it changes nothing
select count(*) from sluice.tenants where tenant in ('no_such_role') ;
select regress_publish() is not null as published;
select * from sluice.reconcile();
