# One contract for every refusal: whatever refuses, a caller finds the same things in DETAIL (requirements A16, P5, P6).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;

my $server = Sluice->start('refusals', roles => [qw(app heavy light few)], conf => { max_connections => 40 });
my $base = 300;

# Everything that design and docs promise of a refusal that passes by itself.
sub is_refusal {
  my ($error, $generation, %want) = @_;
  local $Test::Builder::Level = $Test::Builder::Level + 1;
  my $name = $want{reason};
  my $detail = detail_of($error);
  is($error->{code}, $want{code}, "$name: SQLSTATE") or diag(Sluice::Wire::describe($error));
  is($error->{severity}, $want{severity} // 'ERROR', "$name: severity");
  is_deeply([ @$detail{qw(reason retry rule class tenant generation)} ], [ $name, 'after', @want{qw(rule class tenant)}, $generation ], "$name: DETAIL")
    or diag(explain($detail));
  like($detail->{$_}, qr/^\d+$/, "$name: $_ is a number") for qw(used limit retry_after_ms);
  ok($detail->{retry_after_ms} >= $base && $detail->{retry_after_ms} <= 2 * $base, "$name: the delay is between the base and twice the base");
  like($detail->{ticket}, qr/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/, "$name: a ticket") if !$want{severity};
  ok(length $error->{hint}, "$name: a hint for people");
  return $detail;
}

sub apply { my (%field) = @_; return $server->apply({ retry => { baseMs => $base }, %field }, over_limit => 'drain'); }

subtest 'sessions' => sub {
  my $generation = apply(classes => { interactive => 4 }, tenants => { '*' => {}, few => { maxSessions => 1 } }, roleCaps => { light => { maxSessions => 0 } },
    databaseCaps => { template1 => { maxSessions => 0 } });
  my $one = $server->connect('few');
  my %of = (class => 'interactive', code => '53300', severity => 'FATAL');
  my $detail = is_refusal($server->try_connect('few')->error, $generation, %of, reason => 'tenant_session_limit', rule => 'tenants.few.maxSessions', tenant => 'few');
  is("$detail->{used} $detail->{limit}", '1 1', 'with its numbers');
  is_refusal($server->try_connect('light')->error, $generation, %of, reason => 'role_session_limit', rule => 'roleCaps.light.maxSessions', tenant => 'light');
  is_refusal($server->try_connect('app', database => 'template1')->error, $generation, %of, reason => 'database_session_limit',
    rule => 'databaseCaps.template1.maxSessions', tenant => 'app');
  $one->close;
  $generation = apply(classes => { interactive => 4 }, serverSessionPermits => 1);
  $one = $server->connect('app');
  is_refusal($server->try_connect('app')->error, $generation, %of, reason => 'session_limit', rule => 'serverSessionPermits', tenant => 'app');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'transactions' => sub {
  my %of = (class => 'interactive', code => '53000');
  my $generation = apply(classes => { interactive => { permits => 1, maxQueue => 4, queueDeadlineMs => $PATIENT } });
  my $holder = hold($server->connect('app'));
  my @heavy = map { $server->connect('heavy') } 1 .. 4;
  for my $n (1 .. 4) { $heavy[ $n - 1 ]->send_query('SELECT 1'); $server->wait_waiters($n); }
  my $detail = is_refusal($server->connect('heavy')->query('SELECT 1')->{error}, $generation, %of, reason => 'queue_full',
    rule => 'executionClasses.interactive.maxQueue', tenant => 'heavy');
  is("$detail->{used} $detail->{limit}", '4 4', 'with its numbers');

  my $before = $server->value(q{SELECT count FROM sluice.unavailable WHERE source = 'class interactive' AND reason = 'pushed_out'});
  my $light = $server->connect('light');
  $light->send_query('SELECT 1');
  $detail = is_refusal($heavy[3]->finish->{error}, $generation, %of, reason => 'pushed_out', rule => 'executionClasses.interactive.maxQueue', tenant => 'heavy');
  is($detail->{limit}, 4, 'the youngest of the largest queue made room');
  is($server->value(q{SELECT count FROM sluice.unavailable WHERE source = 'class interactive' AND reason = 'pushed_out'}), $before + 1, 'counted by source');
  is($server->value(q{SELECT pushed_out FROM sluice.tenants WHERE tenant = 'heavy' AND class = 'interactive'}), 1, 'and by tenant');
  $holder->run('COMMIT');
  is(scalar(grep { $_->finish->{error} } @heavy[ 0 .. 2 ], $light), 0, 'everybody else runs');

  $generation = apply(classes => { interactive => { permits => 1, queueDeadlineMs => 0 } });
  hold($holder);
  $detail = is_refusal($light->query('SELECT 1')->{error}, $generation, %of, reason => 'deadline_unreachable',
    rule => 'executionClasses.interactive.queueDeadlineMs', tenant => 'light');
  is($detail->{limit}, 0, 'nothing was left');
  $holder->run('COMMIT');

  $generation = apply(classes => { interactive => { permits => 1, queueDeadlineMs => 200 } });
  hold($holder);
  $detail = is_refusal($light->query('SELECT 1')->{error}, $generation, %of, reason => 'queue_deadline',
    rule => 'executionClasses.interactive.queueDeadlineMs', tenant => 'light');
  is($detail->{limit}, 200, 'the deadline');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('refusals: nothing crashed');
done_testing();
