# While the login guard works hard, parallel queries, autovacuum, walsenders (logged in or still at their password prompt) and
# starting background workers are never signalled. SLUICE_ROUNDS sets the number of parallel queries
# (10,000 for a release).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Storm;
use Sluice::Wire;
use Test::More;
use Time::HiRes qw(time sleep);

my $rounds = $ENV{SLUICE_ROUNDS} // 240;

my $node = PostgreSQL::Test::Cluster->new('bystanders');
$node->init(allows_streaming => 1);
unlink $node->data_dir . '/pg_hba.conf';
$node->append_conf('pg_hba.conf', "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n");
my $server = Sluice->wrap($node);
$server->configure(conf => {
  max_connections => 50, max_wal_senders => 8, max_worker_processes => 16, max_parallel_workers => 8, log_min_messages => "'log'",
  autovacuum => 'on', autovacuum_naptime => '1s', log_autovacuum_min_duration => 0, authentication_timeout => '600s' });
$node->start;
$server->prepare(roles => ['app']);
$server->run('CREATE ROLE copier REPLICATION LOGIN');
$server->run('CREATE TABLE big AS SELECT g AS id, g % 7 AS v FROM generate_series(1, 20000) g; CREATE TABLE churn (id int) WITH (autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0)');
$server->run('GRANT ALL ON big, churn TO app; ANALYZE big');

my @settings = ('SET max_parallel_workers_per_gather = 2', 'SET parallel_setup_cost = 0', 'SET parallel_tuple_cost = 0',
  'SET min_parallel_table_scan_size = 0', 'SET ' . $server->parallel_setting . ' = on');
my @reader = map { $server->connect('app') } 1 .. 4;
for my $reader (@reader) { $reader->query($_) for @settings; }

# Two walsenders at work, and three that stand at their password prompt.
my @replication = map { $server->connect('copier', params => { replication => 'true' }) } 1 .. 2;
my @slow_replication = map { my $wire = $server->open_socket(tcp => 1); $wire->startup('copier', undef, { replication => 'true' }); $wire } 1 .. 3;
is(scalar(grep { $_->receive->{type} eq 'R' } @slow_replication), 3, 'three walsenders stand at the password prompt');

my @storm = (
  Sluice::Storm->start(port => $server->port, burst => 60, rate => 15, say => Sluice::Storm::startup_packet('app')),
  Sluice::Storm->start(port => $server->port, burst => 150, rate => 10, say => ''));
# PostgreSQL 15 itself starts no background worker while the child slots are full (a parallel query may then fail with "lost
# connection to parallel worker"), and they are full of silent sockets until the guard has cleared the first burst.
my $cleared = qr/ended \d+ connections that had not sent anything yet/;
ok(wait_until(sub { $server->status('logins_terminated') > 0 && PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ $cleared },
    'the guard at work'), 'the guard has something to do');
ok(wait_until(sub { !$reader[0]->query('SELECT count(*) FROM big')->{error} }, 'a parallel query'),
  'parallel workers start again');
my $terminated = $server->status('logins_terminated');

# What the rounds have to meet, however fast the machine runs them.
sub met {
  my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
  return $server->status('logins_terminated') > $terminated && $log =~ /automatic vacuum of table "postgres.public.churn"/;
}

# A walsender may find every slot taken at that moment, as anybody may: then it comes again.
sub start_walsender {
  my $wire;
  wait_until(sub { $wire = $server->try_connect('copier', params => { replication => 'true' }); $wire->logged_in || $wire->error && $wire->error->{code} ne '53300' }, 'a free slot');
  return $wire;
}

my ($wrong, $ended, $replies, $started, $round, $until) = (0, 0, 0, 0, 0, time + 600);
while ($round < $rounds / @reader || ($round % 20 || !met()) && time < $until) {
  $round++;
  $_->send_query('SELECT count(*), sum(v) FROM big') for @reader;
  $reader[0]->is_open and $server->run('INSERT INTO churn SELECT generate_series(1, 60); DELETE FROM churn') if $round % 10 == 1;
  for my $wire (@replication) {
    my $answer = $wire->query('IDENTIFY_SYSTEM');
    $answer->{error} ? $ended++ : $replies++;
  }
  # A walsender's start: login, one command, end.
  if ($round % 10 == 0) {
    my $wire = start_walsender();
    $wire->logged_in ? $started++ : $ended++;
    $wire->close;
  }
  for my $reader (@reader) {
    my $answer = $reader->finish;
    next if !$answer->{error} && $answer->{rows}[0][0] == 20000 && $answer->{rows}[0][1] == 59998;
    diag(Sluice::Wire::describe($answer->{error}), ' ', join ',', map { @$_ } @{ $answer->{rows} }) if !$wrong++;
  }
}
is($wrong, 0, $round * @reader . " parallel queries under both storms: every answer right");
is($ended, 0, "no walsender was ended ($replies answers, $started starts)");
is(scalar(grep { $_->readable(0) } @slow_replication), 0, 'nor one of those still at the password prompt');
cmp_ok($server->status('logins_terminated'), '>', $terminated, 'while the guard was at work');
$_->stop for @storm;

my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
cmp_ok(scalar(() = $log =~ /automatic vacuum of table "postgres.public.churn"/g), '>', 0, 'autovacuum worked meanwhile');
is(scalar(() = $log =~ /due to administrator command|terminating (?:autovacuum|background|walsender|walreceiver)/g), 0, 'nobody but logins in progress was told to end');
$_->drop for @slow_replication;
$server->ledger_is_zero('the ledger is zero');
$server->server_log_is_clean('bystanders: nothing crashed');
done_testing();
