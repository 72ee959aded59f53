# Parallel workers and background workers are neither queued nor counted, and other modules' hooks are always called
# (cases F24, F25).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils qw(slurp_file);
use Sluice;
use Test::More;
use Time::HiRes qw(time);

for my $order ('pg_sluice,pg_stat_statements,auto_explain', 'pg_stat_statements,auto_explain,pg_sluice') {
  my $label = $order =~ /^pg_sluice/ ? 'first' : 'last';
  my $server = Sluice->start(
    "chain_$label", roles => ['app'], preload => $order, streaming => 'logical',
    conf => {
      max_connections => 30, wal_level => "'logical'", max_replication_slots => 4, max_worker_processes => 12, max_parallel_workers => 4,
      max_logical_replication_workers => 4, compute_query_id => 'on', 'auto_explain.log_min_duration' => 0, 'auto_explain.log_nested_statements' => 'on',
      'pg_stat_statements.track' => "'all'", 'auto_explain.log_level' => "'log'" });
  $server->run('CREATE EXTENSION pg_stat_statements');
  $server->run('CREATE TABLE t AS SELECT g AS i FROM generate_series(1, 50000) g; ANALYZE t; GRANT ALL ON t TO app');
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });

  subtest "case F25: pg_sluice loaded $label: previous hooks are always called" => sub {
    my ($session, $holder) = map { $server->connect('app') } 1 .. 2;
    $server->run('SELECT pg_stat_statements_reset()');
    $session->run('SELECT count(*) AS plain FROM t') for 1 .. 7;
    $session->extended('SELECT count(*) AS prepared FROM t WHERE i > $1', 5) for 1 .. 5;
    $session->run('DO $$ BEGIN PERFORM max(i) AS nested FROM t; END $$');
    $session->run('CREATE TABLE IF NOT EXISTS pg_temp.made (i int)');
    $holder->run('BEGIN');
    $holder->run('SELECT 1 AS held');
    $session->send_query('SELECT sum(i) AS waited FROM t');
    ok($server->wait_waiters(1), 'a statement waits');
    $holder->run('COMMIT');
    is($session->finish->{error}, undef, 'and is granted');
    my %calls = map { @$_ } @{ $server->rows(q{SELECT substring(query FROM 'AS (\w+)'), sum(calls) FROM pg_stat_statements WHERE query ~ 'AS (plain|prepared|nested|waited) FROM t' AND query ~ '^SELECT' GROUP BY 1}) };
    is_deeply([ @calls{qw(plain prepared nested waited)} ], [ 7, 5, 1, 1 ], 'pg_stat_statements counted each statement once');
    is($server->value(q{SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE 'CREATE TABLE IF NOT%'}), 1, 'utilities as well');
    my $log = slurp_file($server->node->logfile);
    like($log, qr/duration: .* plan:\s+Query Text: SELECT sum\(i\) AS waited/, 'auto_explain saw the statement that waited');
    like($log, qr/Query Text: SELECT max\(i\) AS nested/, 'and the nested one');
    is($session->value('SELECT 1/1'), 1, 'the session goes on');
    $server->ledger_is_zero('the ledger is zero');
  };

  subtest "case F24: pg_sluice loaded $label: a parallel query under a limit of one" => sub {
    my ($session, $holder) = map { $server->connect('app') } 1 .. 2;
    $session->run('SET ' . $server->parallel_setting . ' = on; SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
    my $before = $server->admitted;
    for my $round (1 .. 10) {
      is($session->value('SELECT count(*) FROM t'), 50000, "round $round: the parallel query ends");
    }
    # The workers of the query before may not have left their slots yet: then this one runs without.
    my ($plan, $explained) = ('', 0);
    wait_until(sub {
      $plan = join "\n", map { $_->[0] } @{ $session->rows('EXPLAIN (ANALYZE, COSTS off) SELECT count(*) FROM t') };
      $explained++;
      $plan =~ /Workers Launched: [12]/;
    }, 'a query with workers');
    like($plan, qr/Workers Launched: [12]/, 'workers really ran');
    is($server->admitted - $before, 10 + $explained, 'each query took exactly one permit');
    $session->run('BEGIN');
    $session->run('SELECT count(*) FROM t');
    $holder->send_query('SELECT 1');
    ok($server->wait_waiters(1), 'another session waits');
    is($session->value('SELECT count(*) FROM t'), 50000, 'and the workers of the holder do not wait behind it');
    $session->run('COMMIT');
    is($holder->finish->{error}, undef, 'the waiter is granted');
    $server->ledger_is_zero('the ledger is zero');
  };

  next if $label eq 'last';

  # The apply worker of a subscription is a background worker that fires triggers through SPI.
  subtest 'case F25: SPI from a background worker 10,000 times while the class is full' => sub {
    my $holder = $server->connect('app');
    $server->run('CREATE DATABASE copy_of');
    my $there = $server->connect(Sluice->superuser, database => 'copy_of');
    $server->run('CREATE TABLE source (i int PRIMARY KEY)');
    $server->run('CREATE PUBLICATION pub FOR TABLE source');
    $server->run(q{SELECT pg_create_logical_replication_slot('sub', 'pgoutput')});
    $there->run('CREATE TABLE source (i int PRIMARY KEY); CREATE TABLE fired (i int)');
    $there->run('CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.fired VALUES (NEW.i); RETURN NEW; END $$');
    $there->run('CREATE TRIGGER note AFTER INSERT ON source FOR EACH ROW EXECUTE FUNCTION note()');
    $there->run('ALTER TABLE source ENABLE ALWAYS TRIGGER note');
    $there->run('CREATE SUBSCRIPTION sub CONNECTION \'host=' . $server->socket_dir . ' port=' . $server->port
        . ' dbname=postgres\' PUBLICATION pub WITH (create_slot = false, copy_data = false)');
    $holder->run('BEGIN');
    $holder->run('SELECT 1');
    my $before = $server->admitted;
    my $started = time;
    $server->run('INSERT INTO source SELECT generate_series(1, 10000)');
    ok(wait_until(sub { $there->value('SELECT count(*) FROM fired') == 10000 }, '10,000 rows applied'), 'the worker applied 10,000 rows while the class was full');
    is($server->admitted, $before, 'and took no permit');
    is($server->value(q{SELECT count(*) FROM sluice.sessions s JOIN pg_stat_activity a USING (pid) WHERE a.backend_type LIKE '%worker%'}), 0, 'and has no session record');
    $there->run('DROP SUBSCRIPTION sub');
    $holder->run('COMMIT');
    $server->ledger_is_zero('the ledger is zero');
  };
  $server->server_log_is_clean("cases F24, F25: nothing crashed ($label)");
  $server->stop;
}
done_testing();
