# PostgreSQL's planner and executor see nothing of us: the same data, the same statements, with the extension absent, loaded
# without a policy, in shadow and enforcing, and beside pg_stat_statements and auto_explain in either order, give the same bytes.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sluice;
use Test::More;

# One data directory is the origin of all: same rows, same statistics, same object ids.
my $origin = Sluice->start('origin', roles => ['app'], conf => { max_prepared_transactions => 4 });
$origin->run('GRANT CREATE ON SCHEMA public TO app; CREATE EXTENSION pg_stat_statements');
$origin->node->run_log([ 'pgbench', '-h', $origin->socket_dir, '-p', $origin->port, '-U', 'app', '-i', '-q', '-s', '1', 'postgres' ]);
$origin->run('VACUUM ANALYZE');
my $force_parallel = $origin->parallel_setting;
$origin->stop;
$origin->node->backup_fs_cold('cold');

# Statements of every kind with an answer that does not depend on time or chance.
sub script {
  my @query = (
    'SELECT count(*), sum(abalance), min(aid), max(aid) FROM pgbench_accounts',
    'SELECT * FROM pgbench_accounts WHERE aid = 4711', 'SELECT * FROM pgbench_accounts WHERE aid BETWEEN 10 AND 20 ORDER BY aid DESC',
    'SELECT b.bid, count(*) FROM pgbench_accounts a JOIN pgbench_branches b USING (bid) GROUP BY b.bid ORDER BY 1',
    'SELECT t.tid, t.bid FROM pgbench_tellers t LEFT JOIN pgbench_branches b ON b.bid = t.bid AND b.bid > 5 ORDER BY 1',
    'SELECT aid, rank() OVER (PARTITION BY aid % 3 ORDER BY aid) FROM pgbench_accounts WHERE aid < 20 ORDER BY 1',
    'SELECT aid % 10 AS m, count(*), avg(aid)::numeric(12, 2) FROM pgbench_accounts GROUP BY GROUPING SETS ((aid % 10), ()) ORDER BY 1',
    'WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < 20) SELECT sum(i) FROM r',
    'SELECT * FROM (SELECT DISTINCT bid FROM pgbench_accounts) q', 'SELECT aid FROM pgbench_accounts ORDER BY aid LIMIT 3 OFFSET 1000',
    'SELECT aid FROM pgbench_accounts WHERE aid < 100 INTERSECT SELECT tid FROM pgbench_tellers ORDER BY 1',
    'SELECT EXISTS (SELECT FROM pgbench_history), (SELECT count(*) FROM pgbench_tellers WHERE tbalance = 0)',
    'SELECT g, (SELECT count(*) FROM pgbench_accounts WHERE aid <= g) FROM generate_series(1, 5) g',
    q{SELECT string_agg(aid::text, ',' ORDER BY aid DESC) FROM pgbench_accounts WHERE aid <= 30},
    q{SELECT to_jsonb(a) - 'filler' FROM pgbench_accounts a WHERE aid < 4 ORDER BY aid},
    'SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY aid) FROM pgbench_accounts', 'TABLE pgbench_branches', 'VALUES (1, 2), (3, 4)',
    'SELECT a.aid FROM pgbench_accounts a, LATERAL (SELECT tid FROM pgbench_tellers WHERE tid = a.aid) t ORDER BY 1');
  my @statement = (map { ($_, "EXPLAIN (VERBOSE) $_") } @query);
  push @statement, "SET $force_parallel = on", 'SET min_parallel_table_scan_size = 0', 'SET parallel_setup_cost = 0',
    (map { ($_, "EXPLAIN $_") } grep { !/RECURSIVE/ } @query), 'RESET ALL';
  push @statement, (map { ("PREPARE p AS $_", 'EXECUTE p', 'EXPLAIN EXECUTE p', 'DEALLOCATE p') } @query[ 0 .. 5 ]);
  push @statement,
    'CREATE TABLE w (id int PRIMARY KEY, k text, v numeric DEFAULT 7) ', q{INSERT INTO w SELECT g, 'k' || g % 5 FROM generate_series(1, 500) g},
    q{INSERT INTO w VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET k = excluded.k RETURNING *}, 'UPDATE w SET v = v + id WHERE id % 7 = 0 RETURNING id, v',
    'DELETE FROM w WHERE id > 490 RETURNING id', q{MERGE INTO w USING (VALUES (2, 'm'), (1000, 'n')) s (id, k) ON w.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.k)},
    'ANALYZE w', 'EXPLAIN SELECT * FROM w WHERE id = 5', 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT k, sum(v) FROM w GROUP BY k ORDER BY k',
    'SELECT k, count(*), sum(v) FROM w GROUP BY k ORDER BY k', 'COPY (SELECT * FROM w ORDER BY id LIMIT 5) TO STDOUT',
    'CREATE VIEW wv AS SELECT k, max(id) AS m FROM w GROUP BY k', 'SELECT * FROM wv ORDER BY 1', 'CREATE MATERIALIZED VIEW wm AS SELECT * FROM wv',
    'SELECT count(*) FROM wm', 'CREATE TABLE part (i int, k int) PARTITION BY RANGE (i)', 'CREATE TABLE part_a PARTITION OF part FOR VALUES FROM (0) TO (100)',
    'CREATE TABLE part_b PARTITION OF part FOR VALUES FROM (100) TO (200)', 'INSERT INTO part SELECT g, g % 3 FROM generate_series(0, 199) g',
    'EXPLAIN SELECT * FROM part WHERE i = 150', 'SELECT tableoid::regclass, count(*) FROM part GROUP BY 1 ORDER BY 1',
    q{CREATE FUNCTION fib(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN IF n < 2 THEN RETURN n; END IF; RETURN fib(n - 1) + fib(n - 2); END'},
    'SELECT fib(12)', 'EXPLAIN (VERBOSE) SELECT fib(10)', q{CREATE PROCEDURE pr() LANGUAGE plpgsql AS 'BEGIN INSERT INTO w VALUES (2000); COMMIT; INSERT INTO w VALUES (2001); ROLLBACK; END'},
    'CALL pr()', 'SELECT count(*) FROM w WHERE id >= 2000', 'DO $$ BEGIN PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN RAISE NOTICE \'caught\'; END $$',
    'BEGIN', 'SAVEPOINT a', 'SELECT 1/0', 'ROLLBACK TO a', 'DECLARE c CURSOR FOR SELECT id FROM w ORDER BY id', 'FETCH 3 FROM c', 'MOVE 10 IN c', 'FETCH BACKWARD 2 FROM c', 'COMMIT',
    'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY', 'SELECT count(*) FROM w', 'COMMIT', 'BEGIN', 'INSERT INTO w VALUES (3000)', q{PREPARE TRANSACTION 'two'}, q{COMMIT PREPARED 'two'},
    'SELECT * FROM no_such_table', 'SELECT no_such_column FROM w', 'INSERT INTO w VALUES (1)', 'SELEC 1', 'SHOW work_mem', 'VACUUM w', 'TRUNCATE w', 'DROP TABLE w CASCADE', 'DROP TABLE part';
  return join '', map { "$_;\n" } @statement;
}

my $script = script();
my $file = "$PostgreSQL::Test::Utils::tmp_check/same.sql";
open my $out, '>', $file or die;
print $out "\\set ON_ERROR_STOP off\n\\set VERBOSITY verbose\n$script";
close $out;

my $policy = { classes => { interactive => { permits => 20 } }, adminRoles => {}, serverSessionPermits => 24 };
my %mode = (
  'absent' => { preload => '' },
  'without a policy' => { preload => 'pg_sluice' },
  'in shadow' => { preload => 'pg_sluice', activate => 'shadow' },
  'enforcing' => { preload => 'pg_sluice', activate => 'enforce' },
  'enforcing, after pg_stat_statements and auto_explain' => { preload => 'pg_stat_statements,auto_explain,pg_sluice', activate => 'enforce' },
  'enforcing, before pg_stat_statements and auto_explain' => { preload => 'pg_sluice,auto_explain,pg_stat_statements', activate => 'enforce' },
  'absent, with pg_stat_statements and auto_explain' => { preload => 'pg_stat_statements,auto_explain' });

# Everything the client sees, the tables after a fixed pgbench run, and what pg_stat_statements counted.
sub observe {
  my ($name, $arg, $number) = @_;
  my $node = PostgreSQL::Test::Cluster->new("copy$number");
  $node->init_from_backup($origin->node, 'cold');
  my $server = Sluice->wrap($node, label => "copy$number");
  $server->configure(preload => $arg->{preload}, conf => { max_prepared_transactions => 4, compute_query_id => "'on'",
    $arg->{preload} =~ /auto_explain/ ? ('auto_explain.log_min_duration' => 0, 'auto_explain.log_analyze' => 'on', 'pg_stat_statements.track' => "'all'") : () });
  $node->start;
  if ($arg->{activate}) {
    my $document = $server->document(%$policy);
    $server->run(Sluice::publish_sql($document));
    $server->run(Sluice::activate_sql($document->{generation})) if $arg->{activate} eq 'enforce';
  }
  $server->run('SELECT pg_stat_statements_reset()') if $arg->{preload} =~ /pg_stat_statements/;
  my @connection = ('-h', $server->socket_dir, '-p', $server->port, '-U', 'app');
  my ($stdout, $stderr) = run_command([ 'psql', '-X', '-a', @connection, '-d', 'postgres', '-f', $file ]);
  $stderr =~ s/^psql:[^:]*:/psql:/mg;
  $stderr =~ s/^LOCATION: .*\n//mg;
  for my $protocol ('simple', 'extended', 'prepared') {
    run_command([ 'pgbench', @connection, '-n', '-c', '1', '-t', '50', '--random-seed=5', '-M', $protocol, 'postgres' ]);
  }
  my $tables = join "\n", map { join '|', map { $_ // '' } @$_ } @{ $server->rows(q{
    SELECT 'accounts', count(*), sum(abalance), md5(string_agg(aid || ',' || abalance, ';' ORDER BY aid)) FROM pgbench_accounts
    UNION ALL SELECT 'tellers', count(*), sum(tbalance), md5(string_agg(tid || ',' || tbalance, ';' ORDER BY tid)) FROM pgbench_tellers
    UNION ALL SELECT 'history', count(*), sum(delta), md5(string_agg(tid || ',' || aid || ',' || delta, ';' ORDER BY tid, aid, delta)) FROM pgbench_history ORDER BY 1}) };
  my $calls = $arg->{preload} !~ /pg_stat_statements/ ? undef : join "\n", map { join '|', @$_ } @{ $server->rows(q{
    SELECT query COLLATE "C", toplevel, sum(calls), sum(rows) FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = 'app'
    GROUP BY 1, 2 ORDER BY 1, 2}) };
  my $granted = $arg->{preload} =~ /pg_sluice/ ? $server->value('SELECT coalesce(sum(granted), 0) FROM sluice.classes') : 0;
  $server->ledger_is_zero("$name: the ledger is zero") if $arg->{preload} =~ /pg_sluice/;
  $server->stop;
  $server->server_log_is_clean("$name: nothing crashed");
  return { output => "$stdout\n$stderr", tables => $tables, calls => $calls, granted => $granted };
}

# The first difference of two texts, for the diagnosis.
sub first_difference {
  my ($a, $b) = map { [ split /\n/, $_ ] } @_;
  for my $i (0 .. ($#$a > $#$b ? $#$a : $#$b)) {
    my ($left, $right) = ($a->[$i] // '(end)', $b->[$i] // '(end)');
    return "line $i:\n  $left\n  $right" if $left ne $right;
  }
  return 'none';
}

my ($number, %seen) = (0);
$seen{$_} = observe($_, $mode{$_}, ++$number) for sort keys %mode;

my $reference = $seen{absent};
cmp_ok(length $reference->{output}, '>', 20000, 'the reference says something');
like($reference->{output}, qr/Gather/, 'parallel plans among it');
unlike($reference->{output}, qr/sluice/, 'and is without us');
for my $name (grep { $_ ne 'absent' } sort keys %mode) {
  my $diff = first_difference($reference->{output}, $seen{$name}{output});
  ok($reference->{output} eq $seen{$name}{output}, "$name: results, plans and errors are identical") or diag($diff);
  is($seen{$name}{tables}, $reference->{tables}, "$name: a fixed pgbench run leaves identical tables");
  cmp_ok($seen{$name}{granted}, '>', 200, "$name: the transactions took permits") if $mode{$name}{activate};
}
my $calls = $seen{'absent, with pg_stat_statements and auto_explain'}{calls};
for my $name (grep { defined $seen{$_}{calls} && /enforcing/ } sort keys %mode) {
  ok($seen{$name}{calls} eq $calls, "$name: pg_stat_statements counts the same") or diag(first_difference($calls, $seen{$name}{calls}));
}
done_testing();
