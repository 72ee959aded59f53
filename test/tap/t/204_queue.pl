# The queue: full, deadline, order, weights, in-flight limits, and one contract for every refusal
# (requirements A5, A13, A15, A16, P5, P6, P7).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils ();
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('queue', roles => [qw(app light heavy batch)], conf => { max_connections => 80 });

subtest 'a full queue refuses at once, with the contract in DETAIL' => sub {
  my $generation = $server->apply({ retry => { baseMs => 300 }, classes => { interactive => { permits => 1, maxQueue => 3, queueDeadlineMs => $PATIENT } } });
  my $holder = hold($server->connect('app'));
  my @waiter = map { $server->connect('app') } 1 .. 3;
  $_->send_query('SELECT 1') for @waiter;
  ok($server->wait_waiters(3), 'the queue is full');
  my %delay;
  my $newcomer = $server->connect('app');
  for my $round (1 .. 7) {
    my $error = $newcomer->query('SELECT 1')->{error};
    is($error->{code}, '53000', "round $round: 53000");
    is($error->{severity}, 'ERROR', "round $round: the session lives on");
    my $detail = detail_of($error);
    is_deeply([ @$detail{qw(reason retry rule used limit class tenant generation)} ],
      [ 'queue_full', 'after', 'executionClasses.interactive.maxQueue', 3, 3, 'interactive', 'app', $generation ], "round $round: DETAIL");
    like($detail->{ticket}, qr/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/, "round $round: the ticket has an id");
    ok($detail->{retry_after_ms} >= 300 && $detail->{retry_after_ms} <= 600, "round $round: the delay is between the base and twice the base")
      or diag($detail->{retry_after_ms});
    $delay{ $detail->{retry_after_ms} }++;
    ok(length $error->{hint}, "round $round: a hint for people");
  }
  cmp_ok(scalar keys %delay, '>', 1, 'the delay is jittered');
  is($server->value(q{SELECT sum(count) FROM sluice.refusals WHERE reason = 'queue_full' AND tenant = 'app'}), 7, 'each refusal is counted by tenant and reason');
  $holder->run('COMMIT');
  $_->finish for @waiter;
  is($newcomer->value('SELECT 1'), 1, 'the refused session runs afterwards');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'deadlines are per class and kept' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 200 }, batch => { permits => 1, queueDeadlineMs => 1200 } },
      assign => [ { role => 'batch', class => 'batch' } ] });
  my %limit = (app => 0.2, batch => 1.2);
  for my $role (sort keys %limit) {
    my $holder = hold($server->connect($role));
    my $waiter = $server->connect($role);
    my $started = time;
    my $error = $waiter->query('SELECT 1')->{error};
    my $took = time - $started;
    is($error->{code}, '53000', "$role: 53000");
    is(detail_of($error)->{reason}, 'queue_deadline', "$role: the reason is the deadline");
    cmp_ok($took, '>=', $limit{$role} - 0.05, "$role: not before it");
    note(sprintf '%s: after %.3f s', $role, $took);
    $holder->run('COMMIT');
  }
  my $waiter = $server->connect('app');
  my $holder = hold($server->connect('app'));
  $waiter->run('SET statement_timeout = 150');
  # The margin between the two is 20 ms; a machine that is late by as much lets the bare timeout win.
  my $error;
  wait_until(sub { $error = $waiter->query('SELECT 1')->{error}; $error->{code} ne '57014' }, 'an answer of the queue');
  is($error->{code}, '53000', 'a shorter statement_timeout gives our answer, not the bare timeout') or diag(Sluice::Wire::describe($error));
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'within a tenant the order is that of arrival, and newcomers do not barge' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } } });
  $server->run('DROP TABLE IF EXISTS seen; CREATE TABLE seen (n int, id serial); GRANT ALL ON seen, seen_id_seq TO app');
  my $holder = hold($server->connect('app'));
  my @waiter = map { $server->connect('app') } 1 .. 10;
  for my $n (0 .. 9) { $waiter[$n]->send_query("INSERT INTO seen VALUES ($n)"); $server->wait_waiters($n + 1); }
  my $barger = $server->connect('app');
  $holder->send_query('COMMIT');
  $barger->send_query('INSERT INTO seen VALUES (99)');
  $_->finish for $holder, @waiter, $barger;
  is($server->value('SELECT string_agg(n::text, \' \' ORDER BY id) FROM seen'), '0 1 2 3 4 5 6 7 8 9 99', 'first come, first served');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'between tenants the weights decide, and nobody starves' => sub {
  $server->apply({ serverSessionPermits => 60, classes => { interactive => { permits => 1, queueDeadlineMs => $PATIENT } },
      tenants => { '*' => { weight => 1 }, heavy => { weight => 3 } } });
  $server->run('DROP TABLE IF EXISTS seen; CREATE TABLE seen (who name DEFAULT current_user, id serial); GRANT ALL ON seen, seen_id_seq TO heavy, light');
  my $holder = $server->connect('app');
  my @heavy = map { $server->connect('heavy') } 1 .. 24;
  my @light = map { $server->connect('light') } 1 .. 24;
  # Shares are of time held. A machine that stops one transaction for a while charges its tenant for that, so the share is looked
  # at again and again until a run was even enough.
  my ($failed, $waited, $first, @first) = (0, 1);
  for my $round (1 .. 20) {
    $server->run('TRUNCATE seen RESTART IDENTITY');
    hold($holder);
    $_->send_query('INSERT INTO seen DEFAULT VALUES') for @heavy, @light;
    $waited = 0 unless $server->wait_waiters(48);
    $holder->run('COMMIT');
    $failed += grep { $_->finish->{error} } @heavy, @light;
    $first = $server->value(q{SELECT count(*) FILTER (WHERE who = 'heavy') FROM (SELECT who FROM seen ORDER BY id LIMIT 24) f});
    push @first, $first;
    last if $first >= 15 && $first <= 21;
  }
  ok($waited, '24 of each tenant wait');
  is($failed, 0, 'all of them run');
  cmp_ok($first, '>=', 15, 'the tenant of weight 3 gets about three of four');
  cmp_ok($first, '<=', 21, 'and the other one its share');
  note("of the first 24 heavy got @first");
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a tenant at its in-flight limit parks and holds up nobody' => sub {
  $server->apply({ classes => { interactive => { permits => 4, queueDeadlineMs => $PATIENT } }, tenants => { '*' => {}, heavy => { maxInflight => 2 } } });
  my @heavy = map { $server->connect('heavy') } 1 .. 4;
  hold($_) for @heavy[ 0, 1 ];
  $_->send_query('SELECT 7') for @heavy[ 2, 3 ];
  ok($server->wait_waiters(2), 'the third and fourth of the tenant wait though permits are free');
  my $light = $server->connect('light');
  is($light->value('SELECT 1'), 1, 'another tenant runs past them');
  is($server->value(q{SELECT blocked_by FROM sluice.tickets WHERE state = 'QUEUED' LIMIT 1}), 'tenants.heavy.maxInflight', 'the view says what they wait for');
  $heavy[0]->run('COMMIT');
  ok(wait_until(sub { $heavy[2]->readable }, 'third runs'), 'a release of the tenant lets the next one run');
  $heavy[1]->run('COMMIT');
  $_->finish for @heavy[ 2, 3 ];
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'declared classes: only what mayEnter lists' => sub {
  $server->apply({ classes => { interactive => { permits => 4, mayEnter => ['batch'] }, batch => { permits => 1, queueDeadlineMs => 200 }, other => 1 },
      defaultClass => 'interactive' });
  my $session = $server->connect('app');
  $session->run(q{SET pg_sluice.class = 'batch'});
  hold($session);
  is($server->holders('batch'), 1, 'SET before the transaction moves it into the background class');
  my $second = $server->connect('app', params => { 'pg_sluice.class' => 'batch' });
  is($second->query('SELECT 1')->{error}{code}, '53000', 'a startup parameter as well');
  $second->run('BEGIN');
  $second->run(q{SET LOCAL pg_sluice.class = 'interactive'});
  is($second->code('SELECT 1'), '', 'SET LOCAL before the first statement as well');
  $second->run('COMMIT');
  my $third = $server->connect('app');
  $third->query(q{SET pg_sluice.class = 'other'});
  hold($third);
  is($server->holders('other'), 0, 'a class that is not listed cannot be entered');
  $_->run('COMMIT') for $session, $third;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'all other errors pass through untouched' => sub {
  $server->apply({});
  my $session = $server->connect('app');
  my %error = ('SELEC 1' => '42601', 'SELECT 1/0' => '22012', 'SELECT * FROM nowhere' => '42P01', 'SELECT \'x\'::int' => '22P02', 'DROP TABLE seen' => '42501');
  for my $sql (sort keys %error) {
    my $error = $session->query($sql)->{error};
    is($error->{code}, $error{$sql}, "$sql: its own SQLSTATE");
    unlike(Sluice::Wire::describe($error), qr/sluice reason/, "$sql: and nothing of ours");
  }
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a storm of refusals does not flood the log' => sub {
  $server->apply({ classes => { interactive => { permits => 1, maxQueue => 0 } } });
  my $holder = hold($server->connect('app'));
  my $session = $server->connect('app');
  my $from = -s $server->node->logfile;
  my $started = time;
  $session->send_raw(join '', map { Sluice::Wire::query_message('SELECT 1') } 1 .. 500);
  is(scalar(grep { ($session->finish->{error} // {})->{code} eq '53000' } 1 .. 500), 500, '500 statements are refused');
  my $windows = 2 + int((time - $started) / 10);
  # The window of ten seconds may have been used up by the refusals of the tests before: those are in the log then.
  my $log = PostgreSQL::Test::Utils::slurp_file($server->node->logfile);
  like($log, qr/ERROR:.*queue of the execution class is full/, 'the log tells of them');
  my $lines = () = substr($log, $from) =~ /ERROR:/g;
  cmp_ok($lines, '<=', 5 * $windows, 'in a few lines');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('the queue: nothing crashed');
done_testing();
