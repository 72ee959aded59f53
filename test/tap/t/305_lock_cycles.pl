# Waiting for a permit and waiting for a lock must not close a circle that nobody can see (case F11).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;
use Time::HiRes qw(time);

my $server = Sluice->start('cycles', roles => ['app'], conf => { max_connections => 30 });
$server->run('CREATE TABLE r (id int PRIMARY KEY, v int); INSERT INTO r VALUES (1, 0), (2, 0); ALTER TABLE r OWNER TO app');
$server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } }, overdraft => { max => 2 } });

subtest 'case F11: a session with row locks never queues again' => sub {
  my ($first, $second) = map { $server->connect('app') } 1 .. 2;
  $first->run('BEGIN');
  $first->run('UPDATE r SET v = 1 WHERE id = 1');
  $second->send_query('UPDATE r SET v = v + 1 WHERE id = 1');
  ok($server->wait_waiters(1), 'the second updater of the row queues for a permit');
  is($first->code('UPDATE r SET v = 2 WHERE id = 2'), '', 'the next statement of the first runs without queueing');
  $first->run('COMMIT');
  is($second->finish->{error}, undef, 'the second goes on');
  is($second->value('SELECT v FROM r WHERE id = 1'), 2, 'with the right result');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case F11: a holder that waits for a lock of a queued ticket gets it in time' => sub {
  my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;
  $holder->run('BEGIN');
  $holder->run('SELECT 1');
  # Queued, and by parse analysis it has the relation lock on r that the holder's ALTER TABLE needs.
  $reader->send_query('SELECT sum(v) FROM r');
  ok($server->wait_waiters(1), 'a reader is queued');
  my $started = time;
  my $answer = $holder->query('ALTER TABLE r ADD COLUMN more int');
  is($answer->{error}, undef, 'ALTER TABLE of the holder succeeds') or diag(Sluice::Wire::describe($answer->{error}));
  my $took = time - $started;
  is($server->waiters('interactive'), 0, 'long before the queue deadline of the reader');
  diag(sprintf 'ALTER TABLE waited %.2f s', $took);
  $holder->run('COMMIT');
  is($reader->finish->{error}, undef, 'the reader was let through, not refused');
  $server->ledger_is_zero('the ledger is zero');
};

# A reader is queued with a lock that the ALTER TABLE of a holder needs. The answers of both, and of the policy's generation.
sub meet_a_reader {
  my ($permits, $deadline_ms, @others) = @_;
  my $generation = $server->apply({ classes => { interactive => { permits => $permits, queueDeadlineMs => $deadline_ms } }, overdraft => { max => 0 } },
    over_limit => 'drain');
  my ($holder, $reader) = map { $server->connect('app') } 1 .. 2;
  for my $wire ($holder, @others) { $wire->run('BEGIN'); $wire->run('SELECT 1'); }
  $reader->send_query('SELECT sum(v) FROM r');
  $server->wait_waiters(1);
  is($holder->code("ALTER TABLE r ADD COLUMN column_$generation int"), '', 'ALTER TABLE of the holder succeeds');
  $_->run('COMMIT') for $holder, @others;
  return ($reader->finish->{error}, $generation);
}

my $delay = qr/(?:[23]\d\d|400)/;
my $uuid = qr/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

subtest 'case F11: where nothing moves and there is no overdraft the blocker is refused' => sub {
  my ($error, $generation) = meet_a_reader(1, $PATIENT);
  is($error->{code}, '53000', 'the reader was told to retry');
  like($error->{detail}, qr/^sluice reason=overdraft_exhausted retry=after retry_after_ms=$delay rule=overdraft\.max used=0 limit=0 class=interactive tenant=app ticket=$uuid generation=$generation$/,
    'with all of the reason');
  $server->ledger_is_zero('the ledger is zero');
};

# A holder that does not wait for a lock may end at any time and serve the blocker, so nobody is refused for it.
subtest 'case F11: while another holder goes on only the deadline breaks the wait' => sub {
  my ($error, $generation) = meet_a_reader(2, 1500, $server->connect('app'));
  is($error->{code}, '53000', 'the reader was told to retry');
  like($error->{detail}, qr/^sluice reason=queue_deadline retry=after retry_after_ms=$delay rule=executionClasses\.interactive\.queueDeadlineMs used=\d{4,} limit=1500 class=interactive tenant=app ticket=$uuid generation=$generation$/,
    'with all of the reason');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('case F11: nothing crashed');
done_testing();
