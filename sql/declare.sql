-- pg_sluice.class: a session declares a class that its own class may enter. Whose tenant: that of the authenticated login role.
select current_user as super \gset
\set SHOW_CONTEXT never
create function regress_ticket(out class text, out tenant text, out state text) language sql volatile security definer
  set search_path = pg_catalog as $$ select class, tenant, state from sluice.tickets where pid = pg_backend_pid() $$;
create view regress_view as select * from regress_ticket();
grant select on regress_view to public;
create role regress_other;
grant regress_other to regress_app;
select regress_publish() as generation \gset
select count(*) > 0 as printed from sluice.activate(:generation);
\c - regress_app
select * from regress_ticket();
-- a declaration holds from the next transaction on, whatever the transaction before it was
set pg_sluice.class = 'batch';
select * from regress_ticket();
reset pg_sluice.class;
select * from regress_ticket();
begin;
set local pg_sluice.class = 'batch';
select * from regress_ticket();
commit;
select * from regress_ticket();
-- too late for this transaction: its permit is taken
begin;
select * from regress_ticket();
set local pg_sluice.class = 'batch';
select * from regress_ticket();
commit;
-- a class that is not listed, or none at all: a warning, and the transaction runs at home
set pg_sluice.class = 'nonsense';
select * from regress_ticket();
set pg_sluice.class = 'online';
select * from regress_ticket();
reset pg_sluice.class;
-- SET ROLE, SECURITY DEFINER and views change nothing
set role regress_other;
select * from regress_view;
reset role;
-- the class of the assignment; mayEnter of that class counts
\c - regress_batch
select * from regress_ticket();
set pg_sluice.class = 'online';
select * from regress_ticket();
-- a tenant from a setting: trusted roles only
\c - :super
select regress_publish('{"declare": {"trustedRoles": ["regress_batch"]}, "tenantKey": "setting"}') as by_setting \gset
select count(*) > 0 as printed from sluice.activate(:by_setting);
\c - regress_batch
set pg_sluice.tenant = 'acme';
select * from regress_ticket();
set pg_sluice.tenant = 'globex';
select * from regress_ticket();
\c - regress_app
set pg_sluice.tenant = 'acme';
select * from regress_ticket();
\c - :super
select regress_shadow();
select regress_publish() is not null as published;
drop view regress_view;
drop function regress_ticket();
drop role regress_other;
select * from sluice.reconcile();
