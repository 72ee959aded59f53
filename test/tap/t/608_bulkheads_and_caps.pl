# One setting takes the bulkheads away (P1, P11). And a tenant that fills everything, through every door there is, has its limits all
# the same: what it may hold at a time, and how long (C18).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('caps', roles => [qw(app batch hog)], conf => { max_connections => 60 });
$server->run('CREATE DATABASE other');
my @to_batch = (assign => [ { role => 'batch', class => 'batch' } ]);
my %classes = (interactive => { permits => 1, queueDeadlineMs => 60000 }, batch => { permits => 1, queueDeadlineMs => 60000 });

subtest 'bulkheads: on is two classes, off is one with the permits of both' => sub {
  $server->apply({ classes => \%classes, @to_batch });
  my @batch = map { queue_up($server->connect('batch')) } 1 .. 2;
  ok($server->wait_waiters(1, 'batch'), 'with bulkheads the second batch transaction waits');
  is($server->holders('interactive'), 0, 'though the other class is empty');
  for my $wire (@batch) { $wire->finish; $wire->run('COMMIT'); }
  $server->ledger_is_zero('the ledger is zero');

  $server->apply({ classes => \%classes, @to_batch, bulkheads => 'off' }, over_limit => 'drain');
  @batch = map { queue_up($server->connect('batch')) } 1 .. 2;
  is(scalar(grep { $_->finish->{error} } @batch), 0, 'without them both run: the permits are one pool');
  my $app = queue_up($server->connect('app'));
  ok($server->wait_waiters(1), 'and an interactive transaction waits behind them');
  is($server->value(q{SELECT count(DISTINCT class) FROM sluice.tickets}), 1, 'all in one class');
  is($server->value(q{SELECT permits FROM sluice.classes WHERE state = 'active'}), 2, 'of two permits');
  $batch[0]->run('COMMIT');
  is($app->finish->{error}, undef, 'it runs when one of batch ends');
  $_->run('COMMIT') for $app, $batch[1];
  $server->ledger_is_zero('the ledger is zero');

  $server->apply({ classes => \%classes, @to_batch }, over_limit => 'drain');
  @batch = map { queue_up($server->connect('batch')) } 1 .. 2;
  ok($server->wait_waiters(1, 'batch'), 'and on again the split is back');
  is($server->connect('app')->code('SELECT 1'), '', 'with interactive work beside it');
  for my $wire (@batch) { $wire->finish; $wire->run('COMMIT'); }
  $server->ledger_is_zero('the ledger is zero');
};

# Both databases, socket and TCP.
sub through_every_door {
  my ($role, $count) = @_;
  my @door = ({}, { tcp => 1 }, { database => 'other' }, { database => 'other', tcp => 1 });
  return map { $server->connect($role, %{ $door[ $_ % @door ] }) } 1 .. $count;
}

subtest 'case C18: the limits of a tenant hold through every door' => sub {
  $server->apply({ classes => { interactive => { permits => 4, queueDeadlineMs => 600000 } },
      tenants => { '*' => {}, hog => { maxInflight => 2, maxSessions => 10 } } }, over_limit => 'drain');
  my @hog = through_every_door('hog', 10);
  for my $door ([], [ tcp => 1 ], [ database => 'other' ]) {
    my $refused = $server->try_connect('hog', @$door);
    is($refused->error->{code}, '53300', "an eleventh session is refused (@$door)");
    is(detail_of($refused->error)->{rule}, 'tenants.hog.maxSessions', "by the tenant's cap (@$door)");
  }
  $_->send_query('SELECT pg_sleep(600)') for @hog;
  ok($server->wait_waiters(8), 'of its ten transactions two run and eight wait');
  is($server->holders, 2, 'that is its in-flight limit, over both databases together');
  my $waited = q{SELECT coalesce(sum(waited), 0) FROM sluice.tenants WHERE tenant = 'app'};
  my ($before, @app) = ($server->value($waited), through_every_door('app', 4));
  is(scalar(grep { $_->code('SELECT 1') ne '' } @app), 0, 'others run through every door');
  is($server->value($waited), $before, 'and waited for nothing');
  $_->cancel for @hog;
  $_->finish for @hog;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case C18: a tenant that fills everything with long transactions is bounded by the time limit' => sub {
  $server->apply({ classes => { interactive => { permits => 4, queueDeadlineMs => 600000, transactionTimeLimitMs => 700 } },
      tenants => { '*' => {}, hog => { maxInflight => 2 } } }, over_limit => 'drain');
  my @hog = through_every_door('hog', 6);
  $_->send_query('SELECT pg_sleep(600)') for @hog;
  ok($server->wait_waiters(4), 'two run, four wait');
  my $most = 0;
  my @left = @hog;
  my %code;
  my $until = time + 120;
  while (@left && time < $until) {
    my $held = $server->value(q{SELECT sum(in_use) FROM sluice.tenants WHERE tenant = 'hog'});
    $most = $held if $held > $most;
    my @ended = grep { $_->readable } @left;
    $code{ $_->finish->{error}{code} }++ for @ended;
    my %ended = map { $_ => 1 } @ended;
    @left = grep { !$ended{$_} } @left;
    sleep 0.02;
  }
  is(scalar @left, 0, 'each of the six had its turn and was ended');
  is_deeply([ sort keys %code ], ['57014'], 'by the time limit') or diag(explain(\%code));
  is($most, 2, 'two at a time, never more');
  $server->ledger_is_zero('the ledger is zero');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('bulkheads and caps: nothing crashed');
done_testing();
