-- The views: what they show of one session, and that their numbers agree with each other.
select current_user as super \gset
select regress_publish('{"executionClasses": {"online": {"permits": 10, "maxQueue": 20, "queueDeadlineMs": 1500, "transactionTimeLimitMs": 60000},
                                              "batch": {"permits": 2, "maxQueue": 4}}}') as generation \gset
select count(*) > 0 as printed from sluice.activate(:generation);
call regress_settle(0);
call regress_await_publisher();
select version, mode, activation, enforcement, sessions, session_limit, admin_limit, slots, queued, overdraft_in_use, overdraft_limit,
       unknown_sessions, over_limit_grants, faults, reclaimed, alerts from sluice.status;
select guard_pid is not null as guard, guard_beat_age_ms < 5000 as beats, publisher_pid is not null as publisher, publisher_note,
       memory_bytes > 0 as memory, max_tenants, max_classes, build like version || '%' as build, started_at < now() as started
  from sluice.status;
select class, state, permits, in_use, free, queued, max_queue, queue_deadline_ms, transaction_time_limit_ms from sluice.classes order by class;
-- an administrator takes no permit for its transactions
\c - regress_monitor
select role, database, tenant, class, kind, admin_role, state, counted from sluice.sessions where pid = pg_backend_pid();
select count(*) from sluice.tickets where pid = pg_backend_pid();
select admin_sessions from sluice.status;
-- anybody else sees its own
\c - regress_viewer
select role, database, tenant, class, kind, admin_role, state, counted, idle_ms from sluice.sessions where pid = pg_backend_pid();
select state, tenant, class, held_ms >= 0 as held, waited_ms, queue_position, blocked_by, time_limit_ms, committing, expiring, ticket, named, borrowed_from, expected_wait_ms,
       role, database, application_name is not null as application, activity, query_id is not null as query_id
  from sluice.tickets where pid = pg_backend_pid();
select tenant, class, rule, weight, in_use, max_inflight, sessions from sluice.tenants where tenant = 'regress_viewer' order by class;
-- a tenant's numbers move
\c - regress_app
select 1 as one;
begin;
select 1 as one;
commit;
\c - :super
call regress_settle(0);
select tenant, class, in_use, queued, sessions, peak_sessions > 0 as had_sessions, granted >= 2 as granted, execution_seconds >= 0 as seconds,
       waited, refused, expired, cancelled, pushed_out, expected_wait_ms from sluice.tenants where tenant = 'regress_app' and class = 'online';
select c.class, c.in_use = coalesce(sum(t.in_use), 0) as in_use, c.queued = coalesce(sum(t.queued), 0) as queued
  from sluice.classes c left join sluice.tenants t using (class) group by c.class, c.in_use, c.queued order by class;
-- refusals: one session too many, in shadow and enforced
select count(*) from sluice.refusals where minute < now() - interval '61 minutes';
select regress_shadow();
select regress_publish('{"tenants": {"regress_app": {"maxSessions": 0}}}') as generation \gset
\c - regress_app
select 1 as one;
\c - :super
select tenant, reason, rule, would, sum(count) > 0 as counted from sluice.refusals
 where tenant = 'regress_app' and reason = 'tenant_session_limit' group by 1, 2, 3, 4;
select event, reason, rule, tenant from sluice.events where event = 'would_refuse_session' and tenant = 'regress_app';
select sessions_would_refuse > 0 as counted from sluice.status;
-- metrics: a name once per label set, no value missing, names as Prometheus wants them
select name, labels from sluice.metrics group by 1, 2 having count(*) > 1;
select name from sluice.metrics where value is null or name !~ '^sluice_[a-z_]+$';
select name, value from sluice.metrics where name in ('sluice_up', 'sluice_enforcing', 'sluice_slots', 'sluice_over_limit_grants_total') order by 1;
select labels, value from sluice.metrics where name = 'sluice_class_permits' order by labels;
-- queue times are a histogram as Prometheus reads it: cumulative, closed by +Inf, which equals the count
select labels->>'le' as le from sluice.metrics where name = 'sluice_class_wait_seconds_bucket' and labels->>'class' = 'batch';
select count(*) filter (where b.value < a.value) as decreasing
  from (select labels->>'class' as class, labels->>'le' as le, value, lag(value) over (partition by labels->>'class' order by (labels->>'le')::float8) as previous
          from sluice.metrics where name = 'sluice_class_wait_seconds_bucket') b, lateral (select coalesce(b.previous, 0) as value) a;
select bool_and(b.value = c.value) as complete from sluice.metrics b join sluice.metrics c on c.labels->>'class' = b.labels->>'class'
 where b.name = 'sluice_class_wait_seconds_bucket' and b.labels->>'le' = '+Inf' and c.name = 'sluice_class_wait_seconds_count';
-- what was not available, by source; reasons that never occurred are there as well
select source, reason, count >= 0 as counted from sluice.unavailable where source in ('sessions', 'class batch') order by source, reason;
select sum(value) = (select sum(count) from sluice.unavailable) as same from sluice.metrics where name = 'sluice_unavailable_total';
-- nobody borrows here
select class, borrowed, lent, borrowed_from, borrows, recalls, aging_ms from sluice.classes order by class;
select name from sluice.metrics where labels = '{}' order by name;
-- boots and switches are in the log of changes
select what, who, diff ? 'boot_id' as boot_id from sluice.changes where what = 'boot';
select regress_publish() is not null as published;
select * from sluice.reconcile();
