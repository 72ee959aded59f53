# `sluice policy publish` against a server: what it prints, how it exits, and that a refused policy changes nothing (requirements
# A1, A23; case A12).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Sluice;
use Test::More;

my $command = $ENV{SLUICE_COMMAND} or BAIL_OUT('SLUICE_COMMAND does not name the sluice command');
my $server = Sluice->start('orders-primary', roles => [qw(app stranger)], conf => { max_connections => 40 });
my $dsn = 'host=' . $server->socket_dir . ' port=' . $server->port . ' dbname=postgres user=' . $server->superuser;
my $folder = PostgreSQL::Test::Utils::tempdir();

sub run_sluice {
  my @arguments = @_;
  my ($out, $err) = ('', '');
  IPC::Run::run([ $command, @arguments ], '<', \undef, '>', \$out, '2>', \$err);
  return { status => $? >> 8, out => $out, err => $err };
}

# A policy file from lines that replace or add top-level fields.
sub policy_file {
  my (%field) = @_;
  my %all = (
    schema => 'dbAdmissionPolicy.v1', database => 'orders-primary/write', serverSessionPermits => 25, adminReserve => 3,
    adminRoles => '{dba: {}}', executionClasses => '{interactive: {permits: 10, maxQueue: 100}}', %field);
  my $path = "$folder/policy.yaml";
  open my $file, '>', $path or die "$path: $!";
  print $file "$_: $all{$_}\n" for sort keys %all;
  close $file or die "$path: $!";
  return $path;
}

sub generations { return $server->value('SELECT coalesce(string_agg(generation || state, $$,$$ ORDER BY generation), $$$$) FROM sluice.policies'); }

subtest 'publish stores a generation in shadow and says so' => sub {
  my $ran = run_sluice('policy', 'publish', policy_file(generation => 7), '--dsn', $dsn);
  is($ran->{status}, 0, 'exit status 0') or diag($ran->{err});
  like($ran->{out}, qr/^published generation 7, mode shadow$/m, 'it prints generation and mode');
  like($ran->{out}, qr/sluice\.activate\(7\)/, 'and what comes next');
  is(generations(), '7shadow', 'the server has it in shadow');
  is($server->value(q{SELECT document -> 'executionClasses' -> 'interactive' ->> 'permits' FROM sluice.policies}), 10, 'as it was written');
};

subtest 'warnings of the server are printed' => sub {
  my $ran = run_sluice('policy', 'publish', policy_file(databaseCaps => '{shop: {maxSessions: 5}}'), '--dsn', $dsn);
  is($ran->{status}, 0, 'exit status 0') or diag($ran->{err});
  like($ran->{out}, qr/^published generation 8, mode shadow$/m, 'a generation left out is assigned');
  like($ran->{out}, qr/^warning: .*databaseCaps\.shop.*starve/m, 'the cap without guarantees is warned about');
};

subtest 'activate enforces it and prints now, peak and limit' => sub {
  my $ran = run_sluice('policy', 'publish', policy_file(), '--dsn', $dsn, '--activate');
  is($ran->{status}, 0, 'exit status 0') or diag($ran->{err});
  like($ran->{out}, qr/^generation 9 is enforced$/m, 'it says so');
  like($ran->{out}, qr/^kind\s+name\s+rule\s+now\s+peak\s+limit/m, 'with the head of the table');
  like($ran->{out}, qr/executionClasses\.interactive\.permits\s+\d+\s+\d+\s+10/, 'and the class with its limit');
  like(generations(), qr/9active/, 'the server enforces it');
};

subtest 'a policy that does not fit this server is refused with the arithmetic, and the active one stays' => sub {
  my $before = generations();
  my $ran = run_sluice('policy', 'publish', policy_file(serverSessionPermits => 60), '--dsn', $dsn);
  is($ran->{status}, 1, 'exit status 1');
  like($ran->{err}, qr/serverSessionPermits 60 \+ adminReserve 3 .* = \d+, which is \d+ more than max_connections 40/, 'the message has the sum');
  like($ran->{err}, qr/SQLSTATE 22023/, 'and the SQLSTATE');
  like($ran->{err}, qr/^(DETAIL|HINT): /m, 'and the rest of what the server says');
  is(generations(), $before, 'nothing was stored');
};

subtest 'a broken file is refused with its line before the server is asked' => sub {
  my $before = generations();
  my $ran = run_sluice('policy', 'publish', policy_file(leaseMs => -1), '--dsn', $dsn);
  is($ran->{status}, 1, 'exit status 1');
  like($ran->{out}, qr/policy\.yaml:\d+: error: leaseMs: must be a whole number/, 'with file, line and path');
  is(generations(), $before, 'nothing was stored');
};

subtest 'an activation over a limit leaves the generation published; --drain enforces it' => sub {
  my @session = map { $server->connect('app') } 1 .. 6;
  my $file = policy_file(serverSessionPermits => 4);
  my $ran = run_sluice('policy', 'publish', $file, '--dsn', $dsn, '--activate');
  is($ran->{status}, 1, 'exit status 1');
  like($ran->{out}, qr/is published but not enforced/, 'it says what is true now');
  like($ran->{err}, qr/6 open sessions, limit 4 .*SQLSTATE 55000/s, 'and why') or diag($ran->{err});
  like($ran->{err}, qr/^HINT: .*drain/m, 'and the way out');
  $ran = run_sluice('policy', 'publish', $file, '--dsn', $dsn, '--activate', '--drain');
  is($ran->{status}, 0, 'with --drain it is enforced') or diag($ran->{err});
  is(scalar(grep { $_->value('SELECT 1') == 1 } @session), 6, 'open sessions stay');
  $_->close for @session;
};

subtest 'who may not publish is told so' => sub {
  (my $stranger = $dsn) =~ s/user=\S+/user=stranger/;
  my $ran = run_sluice('policy', 'publish', policy_file(), '--dsn', $stranger);
  is($ran->{status}, 1, 'exit status 1');
  like($ran->{err}, qr/permission denied .*SQLSTATE 42501/, 'with the server\'s words');
};

subtest 'another database has no sluice, and the hint names the setting' => sub {
  (my $elsewhere = $dsn) =~ s/dbname=\S+/dbname=template1/;
  my $ran = run_sluice('policy', 'publish', policy_file(), '--dsn', $elsewhere);
  is($ran->{status}, 1, 'exit status 1');
  like($ran->{err}, qr/^HINT: .*pg_sluice\.database/m, 'the hint');
};

$server->ledger_is_zero('the ledger is zero');
done_testing();
