# A queued statement holds no snapshot where a newer one gives a right answer: it neither keeps VACUUM from removing rows nor
# reads what was true when it came. Beyond READ COMMITTED the first snapshot is the transaction's and stays.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('snapshot', roles => ['app'], conf => { max_connections => 30 });
$server->run('GRANT CREATE ON SCHEMA public TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });
my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;
my $simple = \&Sluice::Wire::query_message;
sub extended { return Sluice::Wire::extended_messages(@_) . Sluice::Wire::sync_message(); }

sub make_table {
  $server->run('DROP TABLE IF EXISTS v; CREATE TABLE v (i int); INSERT INTO v SELECT generate_series(1, 1000); GRANT ALL ON v TO app');
  return;
}

# Deletes half the rows, adds 7, and vacuums; how many dead rows VACUUM could not remove.
sub rows_kept_by_others {
  $server->run('DELETE FROM v WHERE i <= 500');
  $server->run('INSERT INTO v SELECT generate_series(1001, 1007)');
  my $answer = $server->run('VACUUM (VERBOSE) v');
  my ($kept) = join("\n", map { $_->{message} } @{ $answer->{notices} }) =~ /(\d+) (?:are dead|dead row versions cannot be removed)/;
  return $kept;
}

# Queues the messages, changes the table meanwhile: {xmin of the waiter, rows that VACUUM had to keep, the answer}.
sub observe {
  my ($messages) = @_;
  make_table();
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  $reader->send_raw($messages);
  $server->wait_waiters(1) or die 'never queued';
  my $xmin = $server->value('SELECT backend_xmin FROM pg_stat_activity WHERE pid = ' . $reader->pid);
  my $kept = rows_kept_by_others();
  $holder->run('COMMIT');
  my $answer = $reader->finish;
  return { xmin => $xmin // 'none', kept => $kept // 'unknown', answer => $answer,
    value => $answer->{error} ? $answer->{error}{code} : $answer->{rows}[0][0] };
}

subtest 'a queued statement in READ COMMITTED does not hold back VACUUM and reads what was committed meanwhile' => sub {
  for my $case (
    [ 'SELECT', $simple->('SELECT count(*) FROM v') ], [ 'SELECT, extended', extended('SELECT count(*) FROM v') ],
    [ 'SELECT with parameters', Sluice::Wire::parse_message('', 'SELECT count(*) FROM v WHERE i > $1::int') . Sluice::Wire::bind_message('', '', '0')
        . Sluice::Wire::execute_message('', 0) . Sluice::Wire::sync_message() ],
    [ 'first SELECT of a transaction', $simple->('BEGIN; SELECT count(*) FROM v; COMMIT') ],
    [ 'INSERT from SELECT', $simple->('CREATE TEMP TABLE IF NOT EXISTS counted (c int)'), 'INSERT INTO pg_temp.counted SELECT count(*) FROM v; SELECT c FROM pg_temp.counted ORDER BY c LIMIT 1' ],
    [ 'COPY', $simple->('CREATE TEMP TABLE IF NOT EXISTS counted (c int)'), 'DO $$ BEGIN DELETE FROM pg_temp.counted; INSERT INTO pg_temp.counted SELECT count(*) FROM v; END $$; SELECT c FROM pg_temp.counted' ],
    [ 'CREATE TABLE AS', $simple->('DROP TABLE IF EXISTS pg_temp.made'), 'CREATE TEMP TABLE made AS SELECT count(*) AS c FROM v; SELECT c FROM pg_temp.made' ]) {
    my ($name, $messages, $sql) = @$case;
    # A statement that needs its own table first: made before anybody waits.
    if ($sql) { $reader->send_raw($messages); $reader->finish; $messages = $simple->($sql); }
    my $seen = observe($messages);
    is($seen->{xmin}, 'none', "$name: holds no snapshot while it waits");
    is($seen->{kept}, 0, "$name: VACUUM removes every dead row");
    is($seen->{value}, 507, "$name: reads the rows committed while it waited") or diag(Sluice::Wire::describe($seen->{answer}{error}));
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'in REPEATABLE READ and SERIALIZABLE a queued statement keeps its snapshot' => sub {
  for my $level ('REPEATABLE READ', 'SERIALIZABLE') {
    my $seen = observe($simple->("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM v; COMMIT"));
    isnt($seen->{xmin}, 'none', "$level: holds its snapshot");
    is($seen->{value}, 1000, "$level: reads what was true when the snapshot was taken");
    # A snapshot that was exported or set before the wait is the same one afterwards.
    $reader->run("BEGIN ISOLATION LEVEL $level");
    $reader->run('ROLLBACK');
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

subtest 'a SELECT that writes, and one inside another statement, read right whichever snapshot they keep' => sub {
  for my $case (
    [ 'INSERT RETURNING', 'CREATE TEMP TABLE IF NOT EXISTS kept (c int); INSERT INTO kept SELECT count(*) FROM v RETURNING c' ],
    [ 'EXPLAIN ANALYZE', 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT i FROM v' ],
    [ 'modifying CTE', 'WITH d AS (DELETE FROM v WHERE i > 500 RETURNING i) SELECT count(*) FROM d' ],
    [ 'cursor', 'BEGIN; DECLARE c CURSOR FOR SELECT count(*) FROM v; FETCH c; COMMIT' ]) {
    my ($name, $sql) = @$case;
    my $value = observe($simple->($sql))->{value} // '';
    ($value) = $value =~ /actual rows=(\d+)/ if $name eq 'EXPLAIN ANALYZE';
    like($value, $name eq 'modifying CTE' ? qr/^50[07]$/ : qr/^(1000|507)$/, "$name: one of the two states, never a mixture");
  }
  $server->ledger_is_zero('the ledger is zero', open => 1);
};

$server->server_log_is_clean('nothing crashed');
done_testing();
