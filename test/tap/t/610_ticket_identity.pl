# A request that keeps its id over retries: it keeps its age, and it is never run twice (requirements A7, A16, A17, P4, P5).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('ticket', roles => [qw(app other)], conf => { max_connections => 60 });
my $next = 0;

sub fresh { return sprintf '%08x-0000-4000-8000-%012x', ++$next, $$; }
# One request: a transaction that names itself. The error, or undef.
sub request {
  my ($wire, $ticket, $sql) = @_;
  $wire->run('BEGIN');
  $wire->run("SET LOCAL pg_sluice.ticket = '$ticket'");
  my $error = $wire->query($sql // 'SELECT 1')->{error};
  $wire->run($error ? 'ROLLBACK' : 'COMMIT');
  return $error;
}

# Receipts count for as long as a busy machine may need between two steps of a test.
sub one_permit { my (%class) = @_; return $server->apply({ leaseMs => 120000, classes => { interactive => { permits => 1, queueDeadlineMs => 30000, %class } } }); }

subtest 'a request is executed once: a second one with its id reads the receipt' => sub {
  my $generation = one_permit();
  $server->run('DROP TABLE IF EXISTS done; CREATE TABLE done (id serial, who name DEFAULT session_user); GRANT ALL ON done, done_id_seq TO app, other');
  my ($first, $second) = map { $server->connect('app') } 1 .. 2;
  my $ticket = fresh();
  is(request($first, $ticket, 'INSERT INTO done DEFAULT VALUES'), undef, 'the first one runs');
  for my $session ($first, $second) {
    my $error = request($session, $ticket, 'INSERT INTO done DEFAULT VALUES');
    is($error->{code}, '42710', 'refused as a duplicate');
    is($error->{severity}, 'ERROR', 'and the session lives on');
    my $detail = detail_of($error);
    is_deeply([ @$detail{qw(reason retry ticket outcome class tenant generation)} ],
      [ 'duplicate_ticket', 'never', $ticket, 'REQUEST_RELEASED', 'interactive', 'app', $generation ], 'DETAIL says what became of the first');
    like($detail->{ended_ms_ago}, qr/^\d+$/, 'and how long ago it ended');
    ok(!exists $detail->{retry_after_ms}, 'there is no delay after which to try again');
    like($error->{hint}, qr/whether the first request took effect/, 'the hint says what to look for');
  }
  is($server->value('SELECT count(*) FROM done'), 1, 'it was executed once');
  is(request($server->connect('other'), $ticket, 'INSERT INTO done DEFAULT VALUES'), undef, 'the same id of another role is another request');
  is(request($second, fresh(), 'INSERT INTO done DEFAULT VALUES'), undef, 'a new id runs');
  is($server->value('SELECT count(*) FROM done'), 3, 'as it should');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a duplicate of a live request is refused as such, and changes nothing for the first' => sub {
  one_permit();
  my $ticket = fresh();
  my $running = $server->connect('app');
  $running->run('BEGIN');
  $running->run("SET LOCAL pg_sluice.ticket = '$ticket'");
  $running->run('SELECT 1');
  my $twin = $server->connect('app');
  my $error = request($twin, $ticket);
  is($error->{code}, '42710', 'while the first one runs: 42710');
  is(detail_of($error)->{state}, 'IN_TRANSACTION', 'DETAIL says so');
  ok(!exists detail_of($error)->{outcome}, 'and speaks of no end');

  my $waiting = fresh();
  my $waiter = $server->connect('app');
  $waiter->run('BEGIN');
  $waiter->run("SET LOCAL pg_sluice.ticket = '$waiting'");
  $waiter->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'another request waits');
  is($server->value("SELECT count(*) FROM sluice.tickets WHERE ticket = '$waiting' AND state = 'QUEUED'"), 1, 'the view shows it by its id');
  $error = request($twin, $waiting);
  is(detail_of($error)->{state}, 'QUEUED', 'its duplicate is told that it waits');
  is($server->waiters, 1, 'and does not wait itself');
  is($server->value("SELECT count(*) FROM sluice.events WHERE reason = 'duplicate_ticket' AND ticket = '$waiting'"), 1, 'the event shows the id');
  $running->run('COMMIT');
  is($waiter->finish->{error}, undef, 'the first one is served in its turn');
  $waiter->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a retry keeps its age: by our receipts, whatever turned it away' => sub {
  one_permit(maxQueue => 1, queueDeadlineMs => 60000);
  my $holder = hold($server->connect('app'));
  my $session = $server->connect('app');
  my $ticket = fresh();
  $session->run('SET pg_sluice.queue_deadline = 400');
  my $error = request($session, $ticket);
  my $ended = time;
  is(detail_of($error)->{reason}, 'queue_deadline', 'it waited in vain');
  $session->run('RESET pg_sluice.queue_deadline');
  is(detail_of($error)->{ticket}, $ticket, 'DETAIL shows its id');
  my $least = 400 + 1000 * (time - $ended);
  $session->run("SET pg_sluice.ticket = '$ticket'");
  $session->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'it tries again');
  my $waited = $server->value("SELECT waited_ms FROM sluice.tickets WHERE ticket = '$ticket'");
  cmp_ok($waited, '>=', $least, 'and stands by the age of its first attempt');

  # The queue is full now: somebody else's request is turned away at once, and keeps its age all the same.
  my $refused = fresh();
  my $other = $server->connect('other');
  is(detail_of(request($other, $refused))->{reason}, 'queue_full', 'a request finds the queue full');
  my $asked = time;
  sleep 0.3;
  $server->run('SELECT pg_cancel_backend(' . $session->pid . ')');
  is($session->finish->{error}{code}, '57014', 'the waiting one is cancelled');
  my $since = time - $asked;
  $other->run("SET pg_sluice.ticket = '$refused'");
  $other->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'tried again, it finds room');
  cmp_ok($server->value("SELECT waited_ms FROM sluice.tickets WHERE ticket = '$refused'"), '>=', 1000 * $since, 'with the age of the refused attempt');
  $holder->run('COMMIT');
  is($other->finish->{error}, undef, 'it runs');
  is($other->code('SELECT 1'), '42710', 'and its id has been used: SET stands for the requests that follow as well');
  $other->run(q{SET pg_sluice.ticket = ''});
  is($other->code('SELECT 1'), '', 'an empty one names nothing');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a cancel that meets the grant leaves a request that has not run' => sub {
  one_permit();
  my ($holder, $session) = map { $server->connect('app') } 1 .. 2;
  hold($holder);
  my $ticket = fresh();
  $session->run("SET pg_sluice.ticket = '$ticket'");
  $session->send_query('SELECT 1');
  ok($server->wait_waiters(1), 'it waits');
  # Stopped, it cannot see its grant before the cancel is there as well.
  kill 'STOP', $session->pid;
  $holder->run('COMMIT');
  kill 'INT', $session->pid;
  kill 'CONT', $session->pid;
  is($session->finish->{error}{code}, '57014', 'it is cancelled');
  is($session->code('SELECT 1'), '', 'and may be sent again');
  is($session->code('SELECT 1'), '42710', 'until it has run');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'DETAIL of a retry counts this attempt, not its age' => sub {
  one_permit(queueDeadlineMs => 300);
  my $holder = hold($server->connect('app'));
  my $session = $server->connect('app');
  my $ticket = fresh();
  request($session, $ticket) for 1 .. 2;
  my $started = time;
  my $detail = detail_of(request($session, $ticket));
  my $took = 1000 * (time - $started);
  is($detail->{limit}, 300, 'limit is the deadline');
  cmp_ok($detail->{used}, '>=', 300, 'used is at least that');
  cmp_ok($detail->{used}, '<=', $took + 1, 'and not more than the attempt took') or diag("$detail->{used} of $took ms");
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'SET, SET LOCAL, and what rolls back' => sub {
  one_permit();
  my $session = $server->connect('app');
  my ($standing, $local) = (fresh(), fresh());
  $session->run("SET pg_sluice.ticket = '$standing'");
  is(request($session, $local), undef, 'SET LOCAL goes before SET, for its transaction');
  is($session->code('SELECT 1'), '', 'then the standing id is used');
  is($session->code('SELECT 1'), '42710', 'once');
  my $late = fresh();
  $session->run(q{SET pg_sluice.ticket = ''});
  $session->run('BEGIN');
  $session->run('SELECT 1');
  is($session->code("SET LOCAL pg_sluice.ticket = '$late'"), '', 'after the first statement it is too late for this transaction');
  $session->run('COMMIT');
  is(request($session, $late), undef, 'so that id is still unused');
  my $undone = fresh();
  $session->run('BEGIN');
  $session->run("SET pg_sluice.ticket = '$undone'");
  $session->run('ROLLBACK');
  is($session->value('SHOW pg_sluice.ticket'), '', 'a rollback takes SET back');
  my $startup = fresh();
  my $named = $server->connect('app', params => { 'pg_sluice.ticket' => $startup });
  is($named->code('SELECT 1'), '', 'a startup parameter names the first request');
  is($named->code('SELECT 1'), '42710', 'of the session');
  my $one_message = fresh();
  is($session->code("SET LOCAL pg_sluice.ticket = '$one_message'; SELECT 1"), '', 'SET LOCAL and the statement in one message');
  is(request($session, $one_message)->{code}, '42710', 'are one request');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'what is no UUID is refused with a clear error' => sub {
  my $session = $server->connect('app');
  for my $wrong ('x', '123', '00000000-0000-0000-0000-000000000000', '0123456789abcdef0123456789abcdeg') {
    my $error = $session->query("SET pg_sluice.ticket = '$wrong'")->{error};
    is($error->{code}, '22023', "$wrong: 22023");
    like($error->{detail}, qr/UUID/, "$wrong: DETAIL says what is wanted");
  }
  is($session->value('SHOW pg_sluice.ticket'), '', 'nothing of it stands');
  is($session->code(q{SET pg_sluice.ticket = '{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}'}), '', 'every form of PostgreSQL itself is taken');
};

subtest 'shadow and the kill switch refuse no duplicate' => sub {
  my $generation = one_permit();
  my $session = $server->connect('app');
  my $ticket = fresh();
  is(request($session, $ticket), undef, 'the request runs');
  $server->run("SELECT * FROM sluice.activate($generation, 'shadow')");
  is(request($session, $ticket), undef, 'in shadow again and again');
  $server->run("SELECT * FROM sluice.activate($generation)");
  $server->set_and_hup('pg_sluice.enforcement' => "'off'");
  ok(wait_until(sub { $session->value('SHOW pg_sluice.enforcement') eq 'off' }, 'the switch'), 'switched off');
  is(request($session, $ticket), undef, 'and then as well');
  $server->set_and_hup('pg_sluice.enforcement' => "'policy'");
  ok(wait_until(sub { $session->value('SHOW pg_sluice.enforcement') eq 'policy' }, 'the switch'), 'switched on');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'the end of the lease forgets an ended request' => sub {
  $server->apply({ leaseMs => 300, classes => { interactive => { permits => 1 } } });
  my $session = $server->connect('app');
  my $ticket = fresh();
  is(request($session, $ticket), undef, 'it runs');
  ok(wait_until(sub { !request($session, $ticket) }, 'the receipt to end', 30), 'after leaseMs its receipt counts no more');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('ticket identity: nothing crashed');
done_testing();
