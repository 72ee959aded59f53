-- sluice.validate(): findings with path, arithmetic and fix; clear errors for what cannot be a document.
\pset format unaligned
select count(*) as policies from sluice.policies \gset
select count(*) from sluice.validate(regress_policy()) where severity = 'error';
select * from sluice.validate(regress_policy('{"serverSessionPermits": 180, "adminReserve": 12}')) where severity = 'error';
select path, message from sluice.validate(regress_policy('{"permits": 3}')) where severity = 'error';
select path, message from sluice.validate(regress_policy('{"database": "elsewhere/write"}')) where severity = 'error';
select path, message from sluice.validate(regress_policy('{"adminReserve": -1}')) where severity = 'error';
select path, message from sluice.validate(regress_policy('{"adminReserve": 1.5}')) where severity = 'error';
select path, message from sluice.validate(regress_policy('{"adminReserve": 99999999999999999999}')) where severity = 'error';
select path, message from sluice.validate(regress_policy('{"adminReserve": "4"}')) where severity = 'error';
select severity, path, message from sluice.validate('{}') where severity = 'error' order by path;
select severity, path, message from sluice.validate('[]');
select severity, path, message from sluice.validate('17');
select severity, path, message from sluice.validate('null');
-- what the document cannot know: the room in the ledger
select path, message, fix from sluice.validate(regress_policy('{"assign": []}') || (select jsonb_build_object('executionClasses',
  jsonb_object_agg('c' || i, '{"permits": 1, "maxQueue": 1}'::jsonb), 'defaultClass', 'c1') from generate_series(1, 9) i)) where severity = 'error';
-- a warning is no refusal
select severity, path from sluice.validate(regress_policy('{"adminRoles": {}}'));
-- what a document cannot hold
select * from sluice.validate(null);
\echo :SQLSTATE
select * from sluice.validate((repeat('[', 20) || repeat(']', 20))::jsonb);
\echo :SQLSTATE
select * from sluice.validate(regress_policy(jsonb_build_object('x', (select jsonb_agg(i) from generate_series(1, 9000) i))));
\echo :SQLSTATE
select * from sluice.validate(regress_policy(jsonb_build_object('x', repeat('y', 300000))));
\echo :SQLSTATE
select * from sluice.validate(regress_policy(('{"adminReserve": 1' || repeat('0', 100) || '}')::jsonb));
\echo :SQLSTATE
-- validating changes nothing
select count(*) = :policies as unchanged from sluice.policies;
select * from sluice.reconcile();
