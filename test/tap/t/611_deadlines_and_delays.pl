# The caller's own deadline, the spread of the delays that refusals give, and what the log tells of a storm
# (requirements A15, A16, P5, P6, P7).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils ();
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time);

my $server = Sluice->start('deadlines', roles => [qw(app batch)], conf => { max_connections => 40 });

# A wait that ends at its deadline: milliseconds it took, and DETAIL.
sub wait_in_vain {
  my ($wire) = @_;
  my $started = time;
  my $error = $wire->query('SELECT 1', 120)->{error};
  return (1000 * (time - $started), detail_of($error));
}

# What holds on any machine: not before the deadline, and DETAIL between the deadline and the time it really took.
sub deadline_is {
  my ($wire, $limit, $name) = @_;
  my ($took, $detail) = wait_in_vain($wire);
  is($detail->{reason}, 'queue_deadline', "$name: the reason is the deadline");
  is($detail->{limit}, $limit, "$name: limit is the deadline that held");
  cmp_ok($detail->{used}, '>=', $limit, "$name: it waited that long");
  cmp_ok($detail->{used}, '<=', $took + 1, "$name: used is no more than it took") or diag("$detail->{used} of $took");
  return;
}

subtest 'a caller may shorten its deadline, never lengthen it' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 1000 } } });
  my $holder = hold($server->connect('app'));
  my $session = $server->connect('app');
  deadline_is($session, 1000, 'without a word');
  $session->run(q{SET pg_sluice.queue_deadline = '200ms'});
  deadline_is($session, 200, 'shorter');
  $session->run(q{SET pg_sluice.queue_deadline = '1min'});
  deadline_is($session, 1000, 'longer has no effect');
  for my $none (0, -1) {
    $session->run("SET pg_sluice.queue_deadline = $none");
    deadline_is($session, 1000, "$none is the class's own");
  }
  $session->run('BEGIN');
  $session->run('SET LOCAL pg_sluice.queue_deadline = 150');
  deadline_is($session, 150, 'SET LOCAL');
  $session->run('ROLLBACK');
  deadline_is($session, 1000, 'for its transaction only');
  my $started = $server->connect('app', params => { 'pg_sluice.queue_deadline' => '250' });
  deadline_is($started, 250, 'a startup parameter');
  is($session->code('SET pg_sluice.queue_deadline = -2'), '22023', 'other negative numbers are refused');
  $holder->run('COMMIT');
  is($session->code('SELECT 1'), '', 'with a permit free no deadline matters');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'the deadline is cut to statement_timeout, so that the answer is ours' => sub {
  $server->apply({ classes => { interactive => { permits => 1, queueDeadlineMs => 60000 } } });
  my $holder = hold($server->connect('app'));
  my $session = $server->connect('app');
  $session->run('SET statement_timeout = 1000');
  my ($took, $detail) = wait_in_vain($session);
  is($detail->{reason}, 'queue_deadline', 'a shorter statement_timeout');
  cmp_ok($detail->{limit}, '<=', 980, 'less its margin');
  cmp_ok($detail->{limit}, '>', 0, 'and something is left of it');
  cmp_ok($detail->{used}, '>=', $detail->{limit}, 'and it waited that long');
  $session->run('SET pg_sluice.queue_deadline = 100');
  deadline_is($session, 100, 'the shortest of all holds');
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

# Worked example of docs/policy.md: short patience for people, long patience for jobs.
subtest 'two classes with targets, intervals and timeouts of their own' => sub {
  $server->apply({ classes => { interactive => { permits => 1, maxQueue => 50, agingMs => 50, queueDeadlineMs => 1500 },
      background => { permits => 1, maxQueue => 500, agingMs => 500, queueDeadlineMs => 4000 } },
    assign => [ { role => 'batch', class => 'background' } ] });
  is_deeply($server->rows('SELECT class, aging_ms, queue_deadline_ms, max_queue FROM sluice.classes ORDER BY class'),
    [ [ 'background', 500, 4000, 500 ], [ 'interactive', 50, 1500, 50 ] ], 'the view shows both');
  my @holder = map { hold($server->connect($_)) } qw(app batch);
  my %waiter = map { $_ => $server->connect($_) } qw(app batch);
  my $started = time;
  $_->send_query('SELECT 1') for values %waiter;
  my $detail = detail_of($waiter{app}->finish(60)->{error});
  is_deeply([ @$detail{qw(class limit rule)} ], [ 'interactive', 1500, 'executionClasses.interactive.queueDeadlineMs' ], 'people give up at theirs');
  $detail = detail_of($waiter{batch}->finish(60)->{error});
  is_deeply([ @$detail{qw(class limit rule)} ], [ 'background', 4000, 'executionClasses.background.queueDeadlineMs' ], 'jobs at theirs');
  cmp_ok(time - $started, '>=', 4, 'and not before');
  $_->run('COMMIT') for @holder;
  $server->ledger_is_zero('the ledger is zero');
};

# 400 delays, uniform over 300 .. 600: a decile stays empty with p < 1e-17, and 7 of 10 hold them all with p < 1e-60.
subtest 'delays are spread between the base and twice the base' => sub {
  my ($base, $count) = (300, 400);
  $server->apply({ retry => { baseMs => $base }, classes => { interactive => { permits => 1, maxQueue => 0 } } });
  my $holder = hold($server->connect('app'));
  my @session = map { $server->connect('app') } 1 .. 4;
  my (%decile, @outside, %missing);
  for my $session (@session) {
    $session->send_raw(join '', map { Sluice::Wire::query_message('SELECT 1') } 1 .. $count / @session);
    for (1 .. $count / @session) {
      my $detail = detail_of($session->finish->{error});
      $missing{$_}++ for grep { !exists $detail->{$_} } qw(reason retry retry_after_ms rule used limit class tenant ticket generation);
      my $delay = $detail->{retry_after_ms} // -1;
      push @outside, $delay if $delay < $base || $delay > 2 * $base;
      my $tenth = int(10 * ($delay - $base) / ($base + 1));
      $decile{$tenth}++;
    }
  }
  is_deeply(\%missing, {}, "$count refusals carry the whole contract");
  is_deeply(\@outside, [], 'every delay lies between the base and twice the base');
  cmp_ok(scalar keys %decile, '>=', 8, 'and they are spread over it') or diag(explain(\%decile));
  cmp_ok((sort { $b <=> $a } values %decile)[0], '<', $count / 3, 'without a favourite') or diag(explain(\%decile));
  $holder->run('COMMIT');
  $server->ledger_is_zero('the ledger is zero');
};

# Every refusal is either a line of the log or in one of the counts, also those after which nobody was refused any more.
subtest 'a storm in the log: a few lines of each kind, and the rest as a count' => sub {
  $server->apply({ classes => { interactive => { permits => 1, maxQueue => 0 }, background => { permits => 1, maxQueue => 5, queueDeadlineMs => 0 } },
    assign => [ { role => 'batch', class => 'background' } ] });
  my $from = -s $server->node->logfile;
  my @holder = map { hold($server->connect($_)) } qw(app batch);
  my %session = map { $_ => $server->connect($_) } qw(app batch);
  my $started = time;
  my ($rounds, $each) = (3, 100);
  for (1 .. $rounds) {
    for my $role (qw(app batch)) {
      $session{$role}->send_raw(join '', map { Sluice::Wire::query_message('SELECT 1') } 1 .. $each);
      is(scalar(grep { ($session{$role}->finish->{error} // {})->{code} eq '53000' } 1 .. $each), $each, "$role: $each refusals");
    }
  }
  my $windows = 2 + int((time - $started) / 10);
  my %log;
  for my $reason (qw(queue_full deadline_unreachable)) {
    ok(wait_until(sub { my $found = $log{$reason} = log_of($from, $reason); $found->{lines} + $found->{left_out} >= $rounds * $each }, "all of $reason", 90),
      "$reason: the count of what was left out follows, though nobody is refused any more");
    # The first line of the storm may account for refusals of the tests before it as well.
    cmp_ok($log{$reason}{lines}, '<=', 5 * $windows, "$reason: a few lines");
    cmp_ok($log{$reason}{left_out}, '>', 0, "$reason: and a count");
  }
  is($log{deadline_unreachable}{lines} + $log{deadline_unreachable}{left_out}, $rounds * $each, 'kinds are counted apart, and exactly');
  $_->run('COMMIT') for @holder;
  $server->ledger_is_zero('the ledger is zero');
};

sub log_of {
  my ($from, $reason) = @_;
  my $log = substr(PostgreSQL::Test::Utils::slurp_file($server->node->logfile), $from);
  my %found = (lines => 0, left_out => 0);
  $found{lines}++ while $log =~ /DETAIL:  sluice reason=$reason /g;
  $found{left_out} += $1 while $log =~ /(\d+) more (?:refusals )?with reason=$reason were left out/g;
  return \%found;
}

$server->server_log_is_clean('deadlines and delays: nothing crashed');
done_testing();
