-- Who may do what, and that every object explains itself.
select current_user as super \gset
-- objects of the extension without a comment
select pg_describe_object(classid, objid, objsubid) as without_comment from pg_depend
 where refclassid = 'pg_extension'::regclass and deptype = 'e'
   and refobjid = (select oid from pg_extension where extname = 'pg_sluice') and classid <> 'pg_type'::regclass
   and obj_description(objid, classid::regclass::name) is null;
-- columns without a comment
select attrelid::regclass || '.' || attname as without_comment from pg_attribute join pg_class c on c.oid = attrelid
 where relnamespace = 'sluice'::regnamespace and relkind in ('r', 'v') and attnum > 0 and col_description(attrelid, attnum) is null;
-- anything that PUBLIC may do
select proname from pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) a
 where pronamespace = 'sluice'::regnamespace and a.grantee = 0;
select relname from pg_class c, aclexplode(coalesce(relacl, acldefault('r', relowner))) a
 where relnamespace = 'sluice'::regnamespace and relkind in ('r', 'v', 'S') and a.grantee = 0;
select nspname from pg_namespace, aclexplode(nspacl) a where nspname = 'sluice' and a.grantee = 0;
-- what pg_monitor may do
select p.oid::regprocedure as monitor_may from pg_proc p where pronamespace = 'sluice'::regnamespace
   and has_function_privilege('pg_monitor', p.oid, 'execute') order by 1;
select relname, has_table_privilege('pg_monitor', c.oid, 'select') as reads,
       has_table_privilege('pg_monitor', c.oid, 'insert, update, delete, truncate') as writes
  from pg_class c where relnamespace = 'sluice'::regnamespace and relkind in ('r', 'v') order by relname;
-- functions that run as their owner have a fixed search_path
select proname from pg_proc where pronamespace = 'sluice'::regnamespace and prosecdef
   and not coalesce(array_to_string(proconfig, ',') like '%search_path=pg_catalog%', false);
-- an ordinary role
\c - regress_app
select * from sluice.status;
select sluice.publish('{}');
-- monitoring reads and changes nothing
\c - regress_monitor
select count(*) from sluice.status;
select count(*) > 0 as metrics from sluice.metrics;
select count(*) >= 0 as rows from sluice.policies;
select * from sluice.publish('{}');
select * from sluice.activate(1);
delete from sluice.policies;
insert into sluice.changes (what) values ('x');
-- a deployer publishes without rights on the tables, and is named
\c - regress_deployer
insert into sluice.policies (generation, document, published_by) values (999999, '{}', 'x');
select mode from sluice.publish(regress_policy());
set role pg_monitor;
\c - :super
select what, who from sluice.changes order by id desc limit 1;
-- nobody's objects in the search path are used
\c - regress_deployer
create temp table policies (generation bigint);
create function pg_temp.max(bigint) returns bigint language sql as 'select 1::bigint';
set search_path = pg_temp, public, pg_catalog;
select mode from sluice.publish(public.regress_policy());
\c - :super
select * from sluice.reconcile();
