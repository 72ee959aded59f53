# Case B2: one application's slow queries freeze nobody else. Batch work never holds more than its permits and what it borrowed, and
# borrows nothing more from the moment that the lender queues (requirements A14, P1, P3).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('bulkheads', roles => [qw(app batch)], conf => { max_connections => 60 });
my @to_batch = (assign => [ { role => 'batch', class => 'batch' } ]);

sub column { my ($name, $class) = @_; return $server->value("SELECT $name FROM sluice.classes WHERE class = '$class'"); }

subtest 'case B2: batch sleeps on all its permits with a full queue, and no interactive transaction waits' => sub {
  $server->apply({ classes => { interactive => { permits => 2 }, batch => { permits => 3, maxQueue => 6, queueDeadlineMs => 600000 } }, @to_batch });
  my @batch = map { $server->connect('batch') } 1 .. 9;
  $_->send_query('SELECT pg_sleep(5)') for @batch;
  ok($server->wait_waiters(6, 'batch'), 'three batch transactions sleep, six wait: its queue is full');
  is($server->connect('batch')->code('SELECT 1'), '53000', 'a tenth is refused');
  my $app = $server->connect('app');
  my ($most, $seen) = (0, 0);
  for my $round (1 .. 60) {
    $app->run('SELECT 1');
    my $held = $server->holders('batch');
    $most = $held if $held > $most;
    $seen++ if $server->waiters('batch');
    sleep 0.05;
  }
  is(column('waited', 'interactive'), 0, 'not one of 60 interactive transactions waited');
  is($most, 3, 'batch never held more than its permits');
  cmp_ok($seen, '>', 0, 'while its queue was there');
  $_->cancel for @batch;
  $_->finish for @batch;
  $server->ledger_is_zero('the ledger is zero');
};

# Batch has 2 permits and may borrow 2 of the 4 of the interactive class.
sub lend {
  my (%borrow) = @_;
  $server->apply({ classes => { interactive => { permits => 4, queueDeadlineMs => 600000 },
        batch => { permits => 2, queueDeadlineMs => 600000, borrow => { from => ['interactive'], max => 2, ttlMs => 400, %borrow } } }, @to_batch },
    over_limit => 'drain');
  return map { queue_up($server->connect('batch')) } 1 .. 8;
}

subtest 'case B2: batch borrows what is idle, and never more than it may' => sub {
  my @batch = lend();
  ok($server->wait_holders(4, 'batch'), 'with nobody there batch has its two permits and two borrowed ones');
  # Whoever was granted ends, and the next one comes: at no moment are there five.
  my ($most, $served) = (0, 0);
  while (@batch) {
    my $next = granted(@batch) // last;
    my $held = $server->holders('batch');
    $most = $held if $held > $most;
    end($next);
    $served++;
    @batch = grep { $_ != $next } @batch;
  }
  is($served, 8, 'all eight run');
  is($most, 4, 'batch never holds more than permits and borrowed ones together');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case B2: borrowing stops as soon as the lender queues, and what is released goes back first' => sub {
  my @batch = lend();
  ok($server->wait_holders(4, 'batch'), 'batch has borrowed two permits');
  my @running = map { granted(@batch) } 1 .. 4;
  # granted() reads the answer, so a session that was found once is found only once.
  my %runs = map { $_ => 1 } @running;
  my @waiting = grep { !$runs{$_} } @batch;
  is(scalar @waiting, 4, 'four batch transactions run and four wait');
  my @app = map { queue_up($server->connect('app')) } 1 .. 4;
  ok($server->wait_waiters(2, 'interactive'), 'two interactive transactions run, two wait for what was lent');
  my @app_waiting = @app;
  my $first = granted(@app_waiting);
  @app_waiting = grep { $_ != $first } @app_waiting;
  my $second = granted(@app_waiting);
  @app_waiting = grep { $_ != $second } @app_waiting;
  for my $number (1 .. 2) {
    end(shift @running);
    my $next = granted(@app_waiting, @waiting);
    ok((grep { $_ == $next } @app_waiting), "release $number repays: an interactive transaction runs, not the next of batch");
    @app_waiting = grep { $_ != $next } @app_waiting;
  }
  is($server->holders('interactive'), 4, 'the interactive class has all its permits again');
  is($server->holders('batch'), 2, 'and batch its own two');
  # From here on batch lives on its own permits: four interactive ones are in use.
  for my $number (1 .. 2) {
    end(shift @running);
    my $next = granted(@waiting);
    @waiting = grep { $_ != $next } @waiting;
    push @running, $next;
    is($server->holders('batch'), 2, "batch's own release $number gives one of batch its turn, and no more than that");
  }
  end($_) for @app;
  # Whether and when it borrows again is for the lender's recent use to say; it does so before long.
  ok($server->wait_holders(4, 'batch'), 'with nobody there any more batch borrows again');
  $_->finish for @waiting;
  end($_) for @running, @waiting;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A14: with cancel a borrowed permit is back though its holder does not end, and only while the lender queues' => sub {
  my @batch = lend(onExpiry => 'cancel');
  ok($server->wait_holders(4, 'batch'), 'batch has borrowed two permits');
  sleep 1.2;
  is($server->holders('batch'), 4, 'three times the ttl later nobody was cancelled: nobody wants the permits');
  my @running = map { granted(@batch) } 1 .. 4;
  # Whoever else waits could be lent a permit again before all of the lender's transactions have come.
  my %runs = map { $_ => 1 } @running;
  for my $wire (grep { !$runs{$_} } @batch) { $wire->cancel; $wire->finish; $wire->run('ROLLBACK'); }
  $_->send_query('SELECT pg_sleep(600)') for @running;
  my @app = map { queue_up($server->connect('app')) } 1 .. 4;
  ok(wait_until(sub { $server->holders('interactive') == 4 }, 'all four interactive transactions run'), 'all of the interactive class runs');
  my @cancelled;
  wait_until(sub { @cancelled = grep { $_->readable } @running; @cancelled == 2 }, 'two were cancelled');
  is(scalar @cancelled, 2, 'two of the four were cancelled: what was borrowed, and nothing of its own');
  for my $wire (@cancelled) {
    my $error = $wire->finish->{error};
    is($error->{code}, '57014', 'the borrower is told 57014');
    like(Sluice::Wire::describe($error) . ' ' . ($error->{context} // ''), qr/sluice/i, 'and who cancelled it');
    $wire->query('ROLLBACK');
  }
  is($server->holders('batch'), 2, 'batch has its own two permits');
  $_->finish, end($_) for @app;
  my @own = grep { my $wire = $_; !grep { $_ == $wire } @cancelled } @running;
  ok(!(grep { $_->readable } @own), 'those on its own permits were left alone');
  $_->cancel for @own;
  $_->finish for @own;
  $_->run('ROLLBACK') for @own;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'case A14: with mark nobody is cancelled, however long the lender queues' => sub {
  my @batch = lend(onExpiry => 'mark');
  ok($server->wait_holders(4, 'batch'), 'batch has borrowed two permits');
  my @running = map { granted(@batch) } 1 .. 4;
  my %runs = map { $_ => 1 } @running;
  my @app = map { queue_up($server->connect('app')) } 1 .. 4;
  ok($server->wait_waiters(2, 'interactive'), 'the lender queues');
  sleep 1.5;
  is($server->holders('batch'), 4, 'the borrower still runs, longer than its ttl');
  is($_->code('SELECT 1'), '', 'and its transactions are sound') for @running;
  end($_) for @running;
  drain(@app, grep { !$runs{$_} } @batch);
  $server->ledger_is_zero('the ledger is zero');
};

is($server->value('SELECT count(*) FROM sluice.reconcile()'), 0, 'reconcile() is empty');
$server->server_log_is_clean('bulkheads: nothing crashed');
done_testing();
