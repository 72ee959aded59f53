# The worked example of docs/callers.md: an application with one role puts its background jobs into their own class
# (requirements P1, P3, P5, P11, A17).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use IPC::Run ();
use Test::More;

my $server = Sluice->start('jobs', roles => [qw(app)], conf => { max_connections => 60 });
$server->run(q{CREATE TABLE work (kind text, number int, class text DEFAULT current_setting('pg_sluice.class'), PRIMARY KEY (kind, number)); GRANT ALL ON work TO app});
my ($folder) = grep { -d } "$FindBin::RealBin/../../examples", "$FindBin::RealBin/../../../docs/examples";
my %classes = (interactive => { permits => 4, maxQueue => 100, queueDeadlineMs => $PATIENT, mayEnter => ['background'] },
  background => { permits => 2, maxQueue => 3, queueDeadlineMs => $PATIENT });
my @rest = (retry => { baseMs => 50 }, defaultClass => 'interactive');

# Starts the application; IPC::Run's handle, and where its words go.
sub start_application {
  my (%count) = @_;
  my ($out, $err) = ('', '');
  my $handle = IPC::Run::start([ '/usr/bin/python3', "$folder/background_jobs.py", 'host=' . $server->socket_dir . ' port=' . $server->port . ' dbname=postgres user=app',
      map { ("--$_", $count{$_}) } sort keys %count ], '<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(600));
  return { handle => $handle, out => \$out, err => \$err };
}

sub finish {
  my ($application) = @_;
  $application->{handle}->finish;
  is(${ $application->{err} }, '', 'it has no complaints');
  return ${ $application->{out} };
}

sub class_column { my ($column, $class) = @_; return $server->value("SELECT $column FROM sluice.classes WHERE class = '$class' AND state = 'active'"); }

subtest 'jobs fill their own class, requests never wait for them' => sub {
  $server->apply({ classes => \%classes, @rest });
  # Two jobs that do not end hold all there is of background; those of the application queue and are turned away.
  my @stuck = map { $server->connect('app') } 1 .. 2;
  for my $wire (@stuck) { $wire->run(q{SET pg_sluice.class = 'background'}); $wire->run('BEGIN'); $wire->run('SELECT 1'); }
  my $application = start_application(jobs => 8, requests => 30, 'job-seconds' => 0.05);
  ok(wait_until(sub { $server->value(q{SELECT count(*) FROM work WHERE kind = 'request'}) == 30 }, 'all requests'), 'all requests are served while no job can run');
  is($server->value(q{SELECT count(*) FROM work WHERE kind = 'job'}), 0, 'no job was');
  is(class_column('waited', 'interactive'), 0, 'and no request ever waited');
  ok(wait_until(sub { class_column('refused', 'background') > 0 }, 'a refusal'), 'jobs beyond the queue are told to come again');
  $_->run('COMMIT') for @stuck;
  like(finish($application), qr/^30 requests \(0 tried again\), 8 jobs \([1-9]\d* tried again\), 0 failed$/m, 'the application got everything done');
  is($server->value(q{SELECT count(*) FROM work WHERE kind = 'job' AND class = 'background'}), 8, 'every job ran once, in its class');
  is(class_column('peak_in_use', 'background'), 2, 'never more of them at a time than the class has permits');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'bulkheads: off needs no change of the application' => sub {
  $server->run('TRUNCATE work');
  $server->apply({ classes => \%classes, bulkheads => 'off', @rest }, over_limit => 'drain');
  is($server->value(q{SELECT permits || ' ' || max_queue FROM sluice.classes WHERE state = 'active'}), '6 103', 'one class with the permits and the queue of both');
  like(finish(start_application(jobs => 8, requests => 30, 'job-seconds' => 0.05)), qr/^30 requests .* 8 jobs .*, 0 failed$/m, 'it declares its class as before, and nothing fails');
  is($server->value('SELECT count(*) FROM work'), 38, 'everything was done once');
  is($server->value(q{SELECT outcome FROM sluice.explain('app', 'postgres', 'background') WHERE step = 'declared class'}), 'interactive', 'explain says where a declaration leads');
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('background jobs: nothing crashed');
done_testing();
