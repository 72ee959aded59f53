# A time limit never touches a transaction that commits. PostgreSQL answers a cancel during the wait for a synchronous standby by
# acknowledging a commit that no standby has; so from PRE_COMMIT on nobody may signal it. SLUICE_COMMIT_ROUNDS sets how many
# commits race with their limit (default 60).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use Sluice;
use Test::More;
use Time::HiRes qw(time sleep);

my $ROUNDS = $ENV{SLUICE_COMMIT_ROUNDS} // 60;
my $AT_ONCE = 30;
my $LIMIT = 1.0;

my $server = Sluice->start(
  'commit', roles => ['app'], streaming => 1,
  conf => { max_connections => 80, synchronous_standby_names => "''", wal_sender_timeout => '0' });
$server->node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($server->node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''\nprimary_conninfo = '@{[ $server->node->connstr ]} application_name=standby'\n");
$standby->start;

$server->run('CREATE TABLE acknowledged (id int PRIMARY KEY); GRANT ALL ON acknowledged TO app');
$server->apply({ serverSessionPermits => 60, classes => { interactive => { permits => 50, transactionTimeLimitMs => $LIMIT * 1000 } } });
my $in_reach = q{SELECT count(*) FROM pg_stat_replication WHERE application_name = 'standby' AND sync_state = 'sync' AND state = 'streaming'};

sub demand_standby {
  $server->set_and_hup(synchronous_standby_names => "'standby'");
  return wait_until(sub { $server->value($in_reach) == 1 }, 'the standby is synchronous');
}

# The commits that wait for the standby.
sub committing { return $server->value(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND usename = 'app'}); }

# What a session has received, without waiting: letters of complete messages, and the errors.
sub heard {
  my ($session) = @_;
  my ($types, @error) = ('');
  while ($session->readable(0)) {
    my $message = $session->receive(5) or last;
    $types .= $message->{type};
    push @error, Sluice::Wire::fields_of($message->{body}) if $message->{type} =~ /[EN]/;
  }
  return ($types, @error);
}

sub is_committing {
  my ($session) = @_;
  return ($server->value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid = " . $session->pid)) > 0;
}

# A session whose statements have come to their commit, which waits for the standby. A machine that gives them no turn for the time
# of their limit lets them be ended before; then they come again.
sub comes_to_commit {
  my ($sql) = @_;
  for my $attempt (1 .. 20) {
    my $session = $server->connect('app');
    $session->send_query($sql);
    wait_until(sub { $session->readable || is_committing($session) }, 'a commit');
    return $session unless $session->readable;
    $session->close;
  }
  die "no commit began: $sql";
}

subtest 'a commit that waits for a stopped standby outlives its time limit' => sub {
  ok(demand_standby(), 'commits wait for the standby');
  ok(wait_until(sub { $server->connect('app')->code('INSERT INTO acknowledged VALUES (0) ON CONFLICT DO NOTHING') eq '' }, 'a commit'),
    'with the standby in reach a commit is acknowledged');
  $standby->stop('fast');
  my $session = comes_to_commit('BEGIN; INSERT INTO acknowledged VALUES (1); COMMIT');
  my $before = $server->rows('SELECT time_limit_cancels, time_limit_terminates FROM sluice.status')->[0];
  is($server->value('SELECT committing FROM sluice.tickets WHERE pid = ' . $session->pid), 't', 'the ledger knows that it commits');
  sleep 3 * $LIMIT + 0.5;
  my ($types) = heard($session);
  is($types, '', 'after three times its limit nothing was said, above all no CommandComplete');
  is(committing(), 1, 'it waits on');
  is_deeply($server->rows('SELECT time_limit_cancels, time_limit_terminates FROM sluice.status')->[0], $before, 'nobody signalled it');
  is($server->value('SELECT count(*) FROM acknowledged WHERE id = 1'), 0, 'and nobody sees the row');
  $standby->start;
  my $answer = $session->finish;
  is_deeply([ $answer->{tags}, $answer->{error}, $answer->{notices} ], [ [ 'BEGIN', 'INSERT 0 1', 'COMMIT' ], undef, [] ], 'with the standby back it is acknowledged, without a warning');
  is($standby->safe_psql('postgres', 'SELECT count(*) FROM acknowledged WHERE id = 1'), '1', 'and the standby has it');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'an autocommit statement and a procedure that commits wait as well' => sub {
  $server->run('CREATE PROCEDURE commits(i int) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO acknowledged VALUES (i); COMMIT; PERFORM 1; END $$');
  ok(demand_standby(), 'commits wait for the standby');
  $standby->stop('fast');
  my %statement = (autocommit => 'INSERT INTO acknowledged VALUES (10)', procedure => 'CALL commits(11)');
  my %session = map { $_ => comes_to_commit($statement{$_}) } sort keys %statement;
  is(committing(), 2, 'both wait for the standby');
  sleep 3 * $LIMIT;
  is((heard($session{$_}))[0], '', "$_: nothing was acknowledged") for sort keys %statement;
  $standby->start;
  for my $name (sort keys %statement) {
    my $answer = $session{$name}->finish;
    # The procedure goes on after its commit, by then over its limit; that commit stays.
    like($answer->{error} ? $answer->{error}{code} : '', $name eq 'procedure' ? qr/^(|57014)$/ : qr/^$/, "$name: ends once the standby is back");
    is_deeply($answer->{notices}, [], "$name: without a warning");
  }
  is($server->value('SELECT count(*) FROM acknowledged WHERE id IN (10, 11)'), 2, 'all rows are there');
  $server->ledger_is_zero('the ledger is zero');
};

# One batch: transactions whose COMMIT is sent around the moment at which their limit is noticed.
sub race {
  my ($first, $count, $later) = @_;
  my @session = map { $server->connect('app') } 1 .. $count;
  my @due;
  for my $i (0 .. $#session) {
    $session[$i]->run('BEGIN');
    $session[$i]->run('INSERT INTO acknowledged VALUES (' . ($first + $i) . ')');
    # The guard looks every 100 ms.
    push @due, [ time + $LIMIT - 0.03 + $later + rand 0.16, $session[$i] ];
  }
  for my $next (sort { $a->[0] <=> $b->[0] } @due) {
    my $pause = $next->[0] - time;
    sleep $pause if $pause > 0;
    $next->[1]->send_query('COMMIT');
  }
  # Each of them is decided: it has its answer, or it waits for the standby. Then a second for whatever might still come.
  wait_until(sub { !grep { !$_->readable(0) && !is_committing($_) } @session }, 'every one answered or committing');
  sleep 1.2;
  my %outcome = (waiting => [], ended => [], acknowledged => [], warned => 0);
  for my $i (0 .. $#session) {
    my ($types, @error) = heard($session[$i]);
    $outcome{warned}++ if grep { ($_->{severity} // '') eq 'WARNING' } @error;
    if ($types =~ /C/) { push @{ $outcome{acknowledged} }, $first + $i; }
    elsif ($types eq '') { push @{ $outcome{waiting} }, [ $first + $i, $session[$i] ]; }
    elsif (grep { ($_->{code} // '') =~ /^57(014|P01)$/ } @error) { push @{ $outcome{ended} }, $first + $i; }
    else { push @{ $outcome{acknowledged} }, "$types?"; }
  }
  return (\%outcome, \@session);
}

subtest "the limit expires at the commit, $ROUNDS rounds" => sub {
  my ($first, %total) = (1000, map { $_ => 0 } qw(waiting ended acknowledged warned late lost ghost));
  # Where all were in time, or none, the next batch comes later, or earlier.
  my ($done, $later, $until) = (0, 0, time + 600);
  while ($done < $ROUNDS || (!$total{waiting} || !$total{ended}) && time < $until) {
    my $count = $done < $ROUNDS && $ROUNDS - $done < $AT_ONCE ? $ROUNDS - $done : $AT_ONCE;
    demand_standby() or last;
    $standby->stop('fast');
    my ($outcome, $session) = race($first, $count, $later);
    $done += $count;
    $later += @{ $outcome->{waiting} } ? @{ $outcome->{ended} } ? 0 : 0.1 : -0.1;
    $total{$_} += @{ $outcome->{$_} } for qw(waiting ended acknowledged);
    $total{warned} += $outcome->{warned};
    # The standby comes back: each that waited is acknowledged, with its row; each that was ended left none.
    $standby->start;
    for my $waiting (@{ $outcome->{waiting} }) {
      my $answer = $waiting->[1]->finish;
      $total{late}++ unless "@{$answer->{tags}}" eq 'COMMIT' && !$answer->{error} && !@{ $answer->{notices} };
    }
    my %there = map { $_->[0] => 1 } @{ $server->rows("SELECT id FROM acknowledged WHERE id >= $first") };
    $total{lost} += grep { !$there{ $_->[0] } } @{ $outcome->{waiting} };
    $total{ghost} += grep { $there{$_} } @{ $outcome->{ended} };
    $first += $count;
    $_->close for @$session;
  }
  diag(join ', ', map { "$_: $total{$_}" } sort keys %total);
  is($total{waiting} + $total{ended}, $done, 'each commit waited or was ended before it began');
  is($total{acknowledged}, 0, 'none was acknowledged without the standby');
  is($total{warned}, 0, 'none was told that its commit may not have been replicated');
  is($total{late}, 0, 'each that waited was acknowledged once the standby was back');
  is($total{lost}, 0, 'with its row');
  is($total{ghost}, 0, 'each that was ended left no row');
  cmp_ok($total{waiting}, '>', 0, 'some were in time');
  cmp_ok($total{ended}, '>', 0, 'and some were not');
  $server->ledger_is_zero('the ledger is zero');
};

is(scalar(grep { /canceling (the )?wait for synchronous replication/ } split /\n/, PostgreSQL::Test::Utils::slurp_file($server->node->logfile)),
  0, 'no commit was cut short');
$server->server_log_is_clean('nothing crashed');
done_testing();
