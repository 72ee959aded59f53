# publish -> shadow -> activate: shadow touches nothing, activation shows and refuses what is over its limit (requirements A1, A2, A23).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start('activation', roles => [qw(app batch)], conf => { max_connections => 60 });

subtest 'with nothing published everything is admitted and counted' => sub {
  my @session = map { $server->connect('app') } 1 .. 12;
  $_->run('SELECT 1') for @session;
  is($server->sessions, 12, 'sessions are counted');
  cmp_ok($server->admitted, '>=', 12, 'transactions are counted');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'shadow counts both kinds of decision and touches nothing' => sub {
  $server->run(Sluice::publish_sql($server->document(serverSessionPermits => 3, classes => { interactive => { permits => 1, queueDeadlineMs => 100 } })));
  my @session = map { $server->connect('app') } 1 .. 8;
  for my $session (@session) { $session->run('BEGIN'); $session->run('SELECT 1'); }
  is($server->holders, 8, 'eight transactions run under a limit of one');
  is($server->waiters, 0, 'nobody waits');
  my $answer = $server->admin->query(Sluice::activate_sql($server->{generation}));
  is($answer->{error}{code}, '55000', 'activate refuses while something is over its limit');
  like($answer->{error}{message}, qr/8 open sessions, limit 3/, 'with the arithmetic');
  like($answer->{error}{detail}, qr/class interactive: 8 running transactions, limit 1/, 'of every limit');
  my %row = map { $_->[2] => $_ } @{ $server->rows(Sluice::activate_sql($server->{generation}, over_limit => 'drain')) };
  my $sessions = $row{serverSessionPermits};
  is_deeply([ @$sessions[ 3 .. 5 ] ], [ 8, $sessions->[4], 3 ], 'activate prints what is now and the limit of sessions');
  cmp_ok($sessions->[4], '>=', 8, 'and the peak');
  cmp_ok($sessions->[6], '>=', 5, 'and how many logins would have been refused');
  my $class = $row{'executionClasses.interactive.permits'};
  is_deeply([ @$class[ 3, 5 ] ], [ 8, 1 ], 'and the same of the class');
  cmp_ok($class->[7], '>=', 7, 'and how many transactions would have waited');
  is($server->try_connect('app')->error->{code}, '53300', 'drain: nobody new is admitted');
  is(scalar(grep { $_->value('SELECT 2') == 2 } @session), 8, 'drain: open transactions go on');
  $_->run('COMMIT') for @session[ 1 .. 7 ];
  is($session[1]->query('SELECT 3')->{error}{code}, '53000', 'drain: a new transaction waits and meets its deadline');
  $session[0]->run('COMMIT');
  is($session[1]->value('SELECT 3'), 3, 'and runs when the last one has ended');
  $_->close for @session[ 0 .. 4 ];
  ok($server->wait_sessions(3), 'five sessions leave');
  is($server->try_connect('app')->error->{code}, '53300', 'at the limit nobody is admitted');
  $session[5]->close;
  ok($server->wait_sessions(2), 'one more leaves');
  ok($server->try_connect('app')->logged_in, 'below it the next one is');
  $server->ledger_is_zero('the ledger is zero');
};

subtest '20 open sessions, limit 18: activation says so' => sub {
  $server->apply({ serverSessionPermits => 30 });
  my @session = map { $server->connect('app') } 1 .. 20;
  my $document = $server->document(serverSessionPermits => 18);
  $server->run(Sluice::publish_sql($document));
  my $answer = $server->admin->query(Sluice::activate_sql($document->{generation}));
  like($answer->{error}{message}, qr/20 open sessions, limit 18/, 'the message has both numbers');
  like($answer->{error}{hint}, qr/drain/, 'the hint names the way out');
  ok($server->try_connect('app')->logged_in, 'the older generation is still enforced');
  $_->close for @session[ 0 .. 9 ];
  ok($server->wait_sessions(10), 'ten leave');
  is($server->admin->code(Sluice::activate_sql($document->{generation})), '', 'then it activates');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'lowered and raised limits are exact under waiters' => sub {
  $server->apply({ classes => { interactive => { permits => 4, queueDeadlineMs => $PATIENT } } });
  my @session = map { $server->connect('app') } 1 .. 10;
  for my $holder (@session[ 0 .. 3 ]) { $holder->run('BEGIN'); $holder->run('SELECT 1'); }
  $_->send_query('BEGIN; SELECT 1') for @session[ 4 .. 9 ];
  ok($server->wait_waiters(6), 'four hold, six wait');
  $server->apply({ classes => { interactive => { permits => 2, queueDeadlineMs => $PATIENT } } }, over_limit => 'drain');
  $_->run('COMMIT') for @session[ 0, 1 ];
  ok(!(grep { $_->readable(0.1) } @session[ 4 .. 9 ]), 'lowered: two ends do not grant anybody');
  is($server->holders, 2, 'lowered: the new limit is met');
  $server->apply({ classes => { interactive => { permits => 6, queueDeadlineMs => $PATIENT } } });
  ok($server->wait_holders(6), 'raised: four waiters are granted at once');
  $_->run('COMMIT') for @session[ 2, 3 ];
  is(scalar(grep { $_->finish->{error} } @session[ 4 .. 9 ]), 0, 'and the last two when others end');
  $_->run('COMMIT') for @session[ 4 .. 9 ];
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a new generation moves sessions to their new class at the next transaction' => sub {
  $server->apply({ classes => { interactive => 4, batch => { permits => 1, queueDeadlineMs => 200 } }, assign => [ { role => 'nobody', class => 'batch' } ] });
  my $session = $server->connect('batch');
  $session->run('BEGIN');
  $session->run('SELECT 1');
  is($server->holders('interactive'), 1, 'the role is in the default class');
  $server->apply({ classes => { interactive => 4, batch => { permits => 1, queueDeadlineMs => 200 } }, assign => [ { role => 'bat*', class => 'batch' } ] });
  is($server->holders('interactive'), 1, 'the running transaction keeps its permit where it took it');
  $session->run('COMMIT');
  is($server->holders('interactive'), 0, 'and returns it there');
  $session->run('BEGIN');
  $session->run('SELECT 1');
  is($server->holders('batch'), 1, 'the next transaction is in the new class');
  $session->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('activation: nothing crashed');
done_testing();
