# Case B16: background against foreground, a queue time for each, a bound on those who wait (requirements A15, A16, P2, P5). The two
# classes have the worked example's targets and timeouts: 50 ms and 15 s against 500 ms and 60 s.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('limits', roles => [qw(app batch)], conf => { max_connections => 60 });
my @to_batch = (assign => [ { role => 'batch', class => 'batch' } ]);

subtest 'case B16: ten arrive at a queue of three, and seven are refused at once' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 200 }, batch => { permits => 1, maxQueue => 3, queueDeadlineMs => 60000 } }, @to_batch });
  my $holder = hold($server->connect('batch'));
  my @arrival = map { $server->connect('batch') } 1 .. 10;
  $_->send_query('SELECT 1') for @arrival;
  my @refused;
  ok(wait_until(sub { @refused = grep { $_->readable } @arrival; @refused == 7 }, 'seven answers'), 'seven have an answer while nobody ends');
  for my $wire (@refused) {
    my $error = $wire->finish->{error};
    is("$error->{code} $error->{severity}", '53000 ERROR', 'refused by 53000, and the session lives');
    my $detail = detail_of($error);
    is_deeply([ @$detail{qw(reason retry rule used limit class)} ], [ 'queue_full', 'after', 'executionClasses.batch.maxQueue', 3, 3, 'batch' ],
      'by a reason of its own');
  }
  is($server->waiters('batch'), 3, 'three wait');
  is($server->waiters('interactive'), 0, 'all in their own class');
  $holder->run('COMMIT');
  my %answered = map { $_ => 1 } @refused;
  is(scalar(grep { $_->finish->{error} } grep { !$answered{$_} } @arrival), 0, 'and they run');
  is(scalar(grep { $_->code('SELECT 1') ne '' } @refused), 0, 'as the refused ones do when they come again');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B16: each class keeps its own deadline' => sub {
  my %deadline = (interactive => 0.2, batch => 5);
  $server->apply({ classes => { map { $_ => { permits => 1, queueDeadlineMs => $deadline{$_} * 1000 } } keys %deadline }, @to_batch });
  my @holder = map { hold($server->connect($_)) } qw(app batch);
  my ($app, $batch) = map { $server->connect($_) } qw(app batch);
  my $queued = time;
  $batch->send_query('SELECT 1');
  ok($server->wait_waiters(1, 'batch'), 'a batch transaction waits');
  # Early is never right. Late is the machine's affair as well, so it is tried until once nothing came between.
  my ($early, $best, $tries, $until) = (0, 1e9, 0, time + 60);
  while ($best > 0.1 && time < $until) {
    my $started = time;
    my $error = $app->query('SELECT 1')->{error};
    my $took = time - $started;
    is(detail_of($error)->{reason}, 'queue_deadline', 'refused by the deadline') or last;
    is(detail_of($error)->{rule}, 'executionClasses.interactive.queueDeadlineMs', 'that of its class');
    $early++ if $took < $deadline{interactive} - 0.005;
    $best = $took - $deadline{interactive} if $took - $deadline{interactive} < $best;
    $tries++;
  }
  is($early, 0, 'none of the interactive transactions was refused before its deadline');
  cmp_ok($best, '<=', 0.1, "the deadline is kept to 100 ms (try $tries)");
  my $error = $batch->finish->{error};
  my $took = time - $queued;
  is(detail_of($error)->{rule}, 'executionClasses.batch.queueDeadlineMs', 'the batch transaction is refused by its own one');
  cmp_ok($took, '>=', $deadline{batch} - 0.005, 'and not before it');
  $_->run('COMMIT') for @holder;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'two targets and two timeouts, as the worked example has them' => sub {
  my %example = (interactive => { agingMs => 50, queueDeadlineMs => 15000 }, batch => { agingMs => 500, queueDeadlineMs => 60000 });
  $server->apply({ classes => { map { $_ => { permits => 1, maxQueue => 100, %{ $example{$_} } } } keys %example }, @to_batch });
  my @holder = map { hold($server->connect($_)) } qw(app batch);
  my @waiter = map { $server->connect($_) } qw(app batch);
  $_->send_query('SELECT 1') for @waiter;
  ok($server->wait_waiters(2), 'one of each class waits');
  my %left = map { @$_ } @{ $server->rows(q{SELECT class, deadline_ms FROM sluice.tickets WHERE state = 'QUEUED'}) };
  cmp_ok($left{interactive}, '<=', 15000, 'the interactive one for at most 15 s');
  cmp_ok($left{batch}, '>', 15000, 'the batch one for longer than that');
  cmp_ok($left{batch}, '<=', 60000, 'and at most 60 s');
  $_->run('COMMIT') for @holder;
  is(scalar(grep { $_->finish->{error} } @waiter), 0, 'both run');
  $server->ledger_is_zero('the ledger is zero');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('queue limits: nothing crashed');
done_testing();
