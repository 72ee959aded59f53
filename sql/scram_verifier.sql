-- What a proxy may know of a role, and which roles it may let in.
select current_user as super \gset
set client_min_messages = warning;
set password_encryption = 'scram-sha-256';
create role regress_lookup login;
grant usage on schema sluice to regress_lookup;
grant execute on function sluice.scram_verifier(text) to regress_lookup;
create role regress_scram login password 'secret' valid until '2040-01-01 00:00:00+00';
create role regress_nopassword login;
create role regress_nologin password 'secret';
create role regress_replication login replication password 'secret';
create role regress_super login superuser password 'secret';
create role regress_between in role regress_super;
create role regress_member login password 'secret' in role regress_between;
create role regress_gone login password 'secret' valid until '2001-01-01 00:00:00+00';
create role "regress_Quoted ""'; name" login password 'secret';
alter role regress_monitor password 'secret';
select regress_publish() > 0 as published;
create function regress_verifier(of_role text) returns text language sql as $$
  select coalesce(left(verifier, 19), 'NULL') || ', until ' || coalesce((valid_until at time zone 'UTC')::text, 'NULL')
    from sluice.scram_verifier(of_role)
$$;
-- only whom it was granted to
\c - regress_app
select * from sluice.scram_verifier('regress_scram');
select * from sluice.proxied_admins;
\c - regress_monitor
select * from sluice.scram_verifier('regress_scram');
\c - regress_lookup
insert into sluice.proxied_admins values ('regress_super');
select rolpassword from pg_authid;
-- the verifier and how long it is valid, also where that is over: the proxy's clock decides nothing
select regress_verifier('regress_scram') as ordinary, regress_verifier('regress_nopassword') as without_password,
       regress_verifier('regress_gone') as no_longer_valid, regress_verifier('regress_Quoted "''; name') as quoted;
-- nobody to be let in
select regress_verifier('no_such_role') as no_such_role, regress_verifier('') as no_name, regress_verifier(null) as null_name,
       regress_verifier('REGRESS_SCRAM') as other_case, regress_verifier('regress_nologin') as nologin,
       regress_verifier(:'super') as the_superuser, regress_verifier('regress_super') as superuser,
       regress_verifier('regress_member') as member_of_superuser, regress_verifier('regress_replication') as replication,
       regress_verifier('regress_monitor') as admin_role;
-- a name that type name would cut off to one that exists
\c - :super
set client_min_messages = warning;
select 'regress_' || repeat('x', 55) as name63 \gset
create role :name63 login password 'secret';
\c - regress_lookup
select regress_verifier(:'name63') as of_63_bytes, regress_verifier(:'name63' || 'x') as of_64_bytes;
-- nobody's objects in the search path are used, whatever the caller sets
create temp table pg_authid (oid oid, rolname name, rolpassword text, rolvaliduntil timestamptz, rolcanlogin bool, rolreplication bool, rolsuper bool);
create temp table policies (generation bigint);
create function pg_temp.ours(name, text) returns bool language sql immutable as 'select true';
create operator pg_temp.= (leftarg = name, rightarg = text, function = pg_temp.ours);
set search_path = pg_temp, public, pg_catalog;
select count(*) from sluice.scram_verifier('no_such_role');
select public.regress_verifier('regress_scram') as ordinary;
reset search_path;
-- listed, it may be let in
\c - :super
insert into sluice.proxied_admins values ('regress_super'), ('regress_replication'), ('regress_monitor'), ('regress_nologin'), ('no_such_role');
\c - regress_lookup
select regress_verifier('regress_super') as superuser, regress_verifier('regress_replication') as replication,
       regress_verifier('regress_monitor') as admin_role, regress_verifier('regress_nologin') as nologin,
       regress_verifier('regress_member') as member_of_superuser;
-- what a change brings is seen by the next call
\c - :super
set client_min_messages = warning;
truncate sluice.proxied_admins;
alter role regress_scram nologin;
select regress_verifier('regress_scram') as nologin;
alter role regress_scram login password null valid until 'infinity';
select regress_verifier('regress_scram') as without_password;
drop function regress_verifier(text);
reset role;
drop owned by regress_lookup;
drop role regress_lookup, regress_scram, regress_nopassword, regress_nologin, regress_replication, regress_member, regress_between,
  regress_super, regress_gone, "regress_Quoted ""'; name", :name63;
alter role regress_monitor password null;
select * from sluice.reconcile();
