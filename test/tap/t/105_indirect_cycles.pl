# Lock cycles that go through somebody else: a session without a permit, a place in a lock's queue, a virtual transaction id. And what is no
# cycle is left alone (case F11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('indirect', roles => ['app'], conf => { max_connections => 50 });
$server->run('CREATE TABLE t (id int); CREATE TABLE u (id int); INSERT INTO t VALUES (1); INSERT INTO u VALUES (1); ALTER TABLE t OWNER TO app; ALTER TABLE u OWNER TO app; GRANT CREATE ON SCHEMA public TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } }, overdraft => { max => 2 } });

sub start_transaction { my ($wire) = @_; $wire->run('BEGIN'); $wire->run('SELECT 1'); return $wire; }

sub waits_for_lock {
  my ($wire) = @_;
  my $pid = $wire->pid;
  return wait_until(sub { $server->value("SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") > 0 }, "pid $pid waits for a lock");
}

sub wire_of_superuser { return $server->connect(Sluice->superuser); }

# Waits for the answer and tests that it came without an error, which is long before the queue's deadline.
sub comes_soon {
  my ($wire, $name) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  my $started = time;
  my $answer = $wire->finish;
  is($answer->{error}, undef, $name) or diag(Sluice::Wire::describe($answer->{error}));
  note(sprintf '%s: after %.2f s', $name, time - $started);
  return;
}

subtest 'case F11: the cycle runs through a session that needs no permit' => sub {
  my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;
  my $outsider = wire_of_superuser();
  $outsider->run('BEGIN');
  $outsider->run('LOCK TABLE u IN ACCESS EXCLUSIVE MODE');
  start_transaction($holder);
  $reader->send_query('SELECT count(*) FROM t');
  ok($server->wait_waiters(1), 'a reader of t is queued');
  $outsider->send_query('LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
  ok(waits_for_lock($outsider), 'the outsider, which has u, waits for the reader');
  $holder->send_query('SELECT count(*) FROM u');
  comes_soon($reader, 'once the holder waits for the outsider the reader is let through');
  comes_soon($outsider, 'the outsider has its lock');
  $outsider->run('COMMIT');
  comes_soon($holder, 'and the holder goes on');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F11: the holder only stands behind in the queue of the lock' => sub {
  my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;
  my $outsider = wire_of_superuser();
  start_transaction($holder);
  $reader->send_query('SELECT count(*) FROM t');
  ok($server->wait_waiters(1), 'a reader is queued');
  $outsider->run('BEGIN');
  $outsider->send_query('LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
  ok(waits_for_lock($outsider), 'an outsider waits for the reader');
  # The holder's AccessShare is compatible with the reader's; only the queued request in front of it is in its way.
  $holder->send_query('SELECT count(*) FROM t');
  comes_soon($reader, 'the reader is let through');
  comes_soon($outsider, 'the outsider has its lock');
  $outsider->run('COMMIT');
  comes_soon($holder, 'and the holder goes on');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F11: CREATE INDEX CONCURRENTLY waits for the transaction of a queued writer' => sub {
  my ($holder, $first, $writer) = map { $server->connect('app') } 1 .. 3;
  start_transaction($first);
  $holder->send_query('CREATE INDEX CONCURRENTLY t_id ON t (id)');
  ok($server->wait_waiters(1), 'the CREATE INDEX CONCURRENTLY queues');
  $writer->send_query('INSERT INTO t VALUES (2)');
  ok($server->wait_waiters(2), 'and behind it a writer of the table');
  $first->run('COMMIT');
  comes_soon($holder, 'the index is built');
  comes_soon($writer, 'and the row written');
  is($server->value('SELECT count(*) FROM pg_index WHERE indrelid = \'t\'::regclass AND indisvalid'), 1, 'the index is valid');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F11: a queued ticket that blocks no holder is not moved ahead' => sub {
  my ($holder, $first, $reader) = map { $server->connect('app') } 1 .. 3;
  my $outsider = wire_of_superuser();
  my $granted = $server->status('overdraft_granted');
  start_transaction($holder);
  $first->send_query('SELECT count(*) FROM u');
  ok($server->wait_waiters(1), 'a reader of u is queued first');
  $reader->send_query('SELECT count(*) FROM t');
  ok($server->wait_waiters(2), 'a reader of t second');
  $outsider->send_query('ALTER TABLE t ADD COLUMN more int');
  ok(waits_for_lock($outsider), 'an administrator waits for the second');
  ok(!$reader->readable(2), 'which still waits two seconds later');
  is($server->value('SELECT count(*) FROM sluice.tickets WHERE blocks_holder'), 0, 'nobody is marked');
  is($server->status('overdraft_granted'), $granted, 'no overdraft was used');
  $holder->run('COMMIT');
  comes_soon($_, 'both readers follow') for $first, $reader;
  comes_soon($outsider, 'and the administrator');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F11: many holders, many blockers, both tables, thirty rounds' => sub {
  $server->apply({ classes => { interactive => { permits => 3, queueDeadlineMs => $PATIENT } }, overdraft => { max => 2 } }, over_limit => 'drain');
  my @app = map { $server->connect('app') } 1 .. 16;
  my ($refused, $failed, $slowest) = (0, 0, 0);
  for my $round (1 .. 30) {
    my @holder = map { start_transaction($_) } @app[ 0 .. 2 ];
    my @reader = @app[ 3 .. 15 ];
    for my $i (0 .. $#reader) { $reader[$i]->send_query('SELECT count(*) FROM ' . ($i % 2 ? 't' : 'u')); }
    $server->wait_waiters(scalar @reader);
    my $started = time;
    $holder[0]->send_query('LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
    $holder[1]->send_query('LOCK TABLE u IN ACCESS EXCLUSIVE MODE');
    # Compatible with the readers, so it must not come before the first one, which waits for them.
    if ($round % 2) { waits_for_lock($holder[0]); $holder[2]->send_query('LOCK TABLE t IN SHARE ROW EXCLUSIVE MODE'); }
    my @answer;
    for my $holder (@holder[ 0, 1 ]) { push @answer, $holder->finish; }
    my $took = time - $started;
    $slowest = $took if $took > $slowest;
    $_->run('COMMIT') for @holder[ 0, 1 ];
    push @answer, $holder[2]->finish if $round % 2;
    $holder[2]->run('COMMIT');
    $failed += grep { $_->{error} } @answer;
    $refused += grep { $_->finish->{error} } @reader;
  }
  is($failed, 0, 'every holder got its lock');
  is($refused, 0, 'no reader was refused');
  diag(sprintf 'slowest LOCK TABLE %.2f s', $slowest);
  is($server->status('over_limit_grants'), 0, 'no grant was above its limit');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('indirect cycles: nothing crashed');
done_testing();
