# Session permits are counted exactly: failed logins, races for the last permit, workers and prepared transactions
# (cases A8 to A12; requirements A1, A9, A19, A23).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Test::More;

my $server = Sluice->start(
  'limits', roles => [qw(app solo capped shut)],
  conf => { max_connections => 40, max_prepared_transactions => 4, max_parallel_workers => 4, max_worker_processes => 8 });
$server->run('CREATE ROLE no_login NOLOGIN');
$server->run('ALTER ROLE shut CONNECTION LIMIT 0');
$server->run('CREATE DATABASE shared_db');
$server->run('CREATE DATABASE closed_db');
$server->run('ALTER DATABASE closed_db ALLOW_CONNECTIONS false');

subtest 'case A8: failed logins leave the count unchanged' => sub {
  $server->apply({ serverSessionPermits => 5 });
  my %attempt = (
    'a role that does not exist' => sub { $server->try_connect('no_such_role') },
    'a role without LOGIN' => sub { $server->try_connect('no_login') },
    'a role at its own CONNECTION LIMIT' => sub { $server->try_connect('shut') },
    'a database that does not exist' => sub { $server->try_connect('app', database => 'no_such_database') },
    'a database that allows no connections' => sub { $server->try_connect('app', database => 'closed_db') },
    'an unknown startup setting' => sub { $server->try_connect('app', params => { no_such_setting => 1 }) },
    'a startup setting only superusers may set' => sub { $server->try_connect('app', params => { log_statement => 'all' }) },
  );
  for my $what (sort keys %attempt) {
    my $accepted = grep { $attempt{$what}->()->logged_in } 1 .. 20;
    is($accepted, 0, "20 logins fail: $what");
    ok($server->wait_sessions(0), "no session permit is left: $what");
  }
  my @valid = map { $server->try_connect('app') } 1 .. 5;
  is(scalar(grep { $_->logged_in } @valid), 5, '5 valid sessions are accepted afterwards');
  is($server->try_connect('app')->error->{code}, '53300', 'and the sixth is refused');
  $_->close for @valid;
  ok($server->wait_sessions(0), 'the count returns to 0 after they leave');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A9: prepared transactions and workers hold no session permit' => sub {
  $server->apply({ tenants => { solo => { maxSessions => 1 } } });
  $server->run('CREATE TABLE big AS SELECT g AS i FROM generate_series(1, 200000) g');
  $server->run('CREATE TABLE written (i int); GRANT ALL ON big, written TO solo; ANALYZE big');
  my $first = $server->connect('solo');
  is($server->try_connect('solo')->error->{code}, '53300', 'the limit of one session holds');
  $first->run('BEGIN');
  $first->run('INSERT INTO written VALUES (1)');
  $first->run(q{PREPARE TRANSACTION 'kept'});
  $first->close;
  ok($server->wait_sessions(0), 'the prepared transaction holds no session permit');
  my $second = $server->connect('solo');
  $second->run('SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
  $second->run('SET parallel_leader_participation = off');
  # Until a look meets its workers: a machine may be quicker with one query than with one look.
  my ($workers, $answered) = (0, 1);
  wait_until(sub {
    if ($answered) { $second->send_query('SELECT count(*) FROM big a, generate_series(1, 40) g WHERE a.i + g > 0'); $answered = 0; }
    $workers = $server->value(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'});
    if ($workers == 0 && $second->readable) { $second->finish; $answered = 1; }
    $workers > 0;
  }, 'parallel workers run');
  cmp_ok($workers, '>', 0, 'parallel workers run');
  is($server->sessions, 1, 'parallel workers hold no session permit');
  is($second->finish->{error}, undef, 'the parallel query ends well');
  is($server->value(q{SELECT count(*) FROM sluice.sessions s JOIN pg_stat_activity a USING (pid) WHERE a.backend_type NOT IN ('client backend', 'walsender')}),
    0, 'no worker of any kind has a session record');
  $second->run(q{ROLLBACK PREPARED 'kept'});
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A10: two logins race for the last permit, 200 rounds' => sub {
  $server->apply({ serverSessionPermits => 1 });
  my (%seen, $codes);
  for my $round (1 .. 200) {
    my @rival = map { $server->open_socket } 1 .. 2;
    $_->startup('app', 'postgres') for @rival;
    $_->finish for @rival;
    my @in = grep { $_->logged_in } @rival;
    $seen{ scalar @in }++;
    $codes .= join '', map { $_->error->{code} ne '53300' ? "$_->{last}{error}{code} " : '' } grep { !$_->logged_in } @rival;
    $_->close for @rival;
    last unless $server->wait_sessions(0);
  }
  is_deeply(\%seen, { 1 => 200 }, 'exactly one of two is accepted in each round');
  is($codes, '', 'the other is always told 53300');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A11: the refusal says which limit' => sub {
  my $generation = $server->apply({
      serverSessionPermits => 4, tenants => { solo => { maxSessions => 1 }, '*' => {} }, roleCaps => { capped => { maxSessions => 1 } },
      databaseCaps => { shared_db => { maxSessions => 1 } } });
  my %limit = (
    'tenants.solo.maxSessions' => [ 'solo', 'postgres', 'tenant_session_limit' ],
    'roleCaps.capped.maxSessions' => [ 'capped', 'postgres', 'role_session_limit' ],
    'databaseCaps.shared_db.maxSessions' => [ 'app', 'shared_db', 'database_session_limit' ],
  );
  for my $rule (sort keys %limit) {
    my ($role, $database, $reason) = @{ $limit{$rule} };
    my $first = $server->connect($role, database => $database);
    my $error = $server->try_connect($role, database => $database)->error;
    my $detail = detail_of($error);
    is($error->{code}, '53300', "$rule: 53300");
    is_deeply([ @$detail{qw(reason rule used limit generation retry)} ], [ $reason, $rule, 1, 1, $generation, 'after' ], "$rule: DETAIL has limit, numbers and generation");
    cmp_ok($detail->{retry_after_ms}, '>=', 200, "$rule: the delay is at least the base");
    cmp_ok($detail->{retry_after_ms}, '<=', 400, "$rule: and at most twice the base");
    ok(length($error->{hint} // ''), "$rule: a hint for people");
    $first->close;
    $server->wait_sessions(0);
  }
  my @all = map { $server->connect('app') } 1 .. 4;
  my $detail = detail_of($server->try_connect('app')->error);
  is_deeply([ @$detail{qw(reason rule used limit tenant)} ], [ 'session_limit', 'serverSessionPermits', 4, 4, 'app' ], 'serverSessionPermits: DETAIL has limit, numbers and tenant');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A12: a budget that does not fit is refused, the active generation stays' => sub {
  my $generation = $server->apply({ serverSessionPermits => 7 });
  my $answer = $server->admin->query(Sluice::publish_sql($server->document(serverSessionPermits => 38)));
  isnt($answer->{error}, undef, 'publish fails');
  my $text = join ' ', map { $answer->{error}{$_} // '' } qw(message detail hint);
  # 38 + adminReserve 3 + loginHeadroom 3 + superuser_reserved_connections 3 = 47 > 40
  like($text, qr/\b47\b/, 'the message has the sum');
  like($text, qr/\b40\b/, 'the message has max_connections');
  like($text, qr/\b38\b/, 'the message has the permits asked for');
  my @session = map { $server->try_connect('app') } 1 .. 8;
  is(scalar(grep { $_->logged_in } @session), 7, 'the previous generation stays active');
  is(detail_of($session[7]->error)->{generation}, $generation, 'and refuses under its own number');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A15: guarantees hold without eviction' => sub {
  $server->apply({ serverSessionPermits => 12, tenants => { '*' => {}, solo => { guaranteedSessions => 2 } } });
  my @idle = map { $server->try_connect('app') } 1 .. 12;
  is(scalar(grep { $_->logged_in } @idle), 10, 'ten idle sessions leave the two guaranteed ones free');
  is($idle[11]->error->{code}, '53300', 'the eleventh is refused');
  my @guaranteed = map { $server->try_connect('solo') } 1 .. 3;
  is(scalar(grep { $_->logged_in } @guaranteed), 2, 'the guaranteed tenant gets its two sessions');
  is(scalar(grep { $_->value('SELECT 1') == 1 } grep { $_->logged_in } @idle), 10, 'no idle session was closed for it');
  $guaranteed[0]->close;
  ok($server->wait_sessions(11), 'a guaranteed session leaves');
  is($server->try_connect('app')->error->{code}, '53300', 'its permit stays reserved for its tenant');
  ok($server->try_connect('solo')->logged_in, 'and its tenant may come back');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('cases A8 to A15: nothing crashed');
done_testing();
