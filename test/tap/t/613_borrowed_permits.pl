# Borrowed permits on a server: what the views show, and how they come back when their lender queues (requirements A14, A12, P12).
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use Sluice;
use Sluice::Turns;
use Test::More;
use Time::HiRes qw(time sleep);

my $server = Sluice->start('borrow', roles => [qw(app batch)], conf => { max_connections => 40 });
$server->run('CREATE TABLE written (id int); GRANT ALL ON written TO batch');

# batch has one permit and may borrow one of the two of interactive. The short lease before makes the lender forget its last use.
sub lend {
  my ($on_expiry, $ttl) = @_;
  return $server->apply({ classes => { interactive => { permits => 2, queueDeadlineMs => $PATIENT },
      batch => { permits => 1, queueDeadlineMs => $PATIENT, borrow => { from => ['interactive'], max => 1, ttlMs => $ttl // 300, onExpiry => $on_expiry } } },
    assign => [ { role => 'batch', class => 'batch' } ] }, over_limit => 'drain');
}

# Two batch transactions: one on the class's own permit, one on a borrowed one, which does `sql`.
sub borrow {
  my ($sql) = @_;
  my $own = hold($server->connect('batch'));
  my $borrower = $server->connect('batch');
  $borrower->run('BEGIN');
  $borrower->send_query($sql);
  ok($server->wait_holders(2, 'batch'), 'the second batch transaction is lent a permit');
  return ($own, $borrower);
}

# The lender uses what it has left, and queues for the rest.
sub queue_in_lender {
  my ($holder, $waiter) = map { $server->connect('app') } 1 .. 2;
  hold($holder);
  $waiter->run('BEGIN');
  $waiter->send_query('SELECT 1');
  return ($holder, $waiter);
}

sub ttl_passes_in_peace {
  my ($borrower, $cancelled) = @_;
  my $pid = $borrower->pid;
  ok(wait_until(sub { $server->value("SELECT held_ms FROM sluice.tickets WHERE pid = $pid") > 1000 }, 'the ttl to pass'), 'the ttl has passed three times');
  is(cancels(), $cancelled, 'and nothing happened: nobody needs the permit');
  return;
}

sub cancels { return $server->status('borrow_cancels'); }
sub expiries { return $server->value(q{SELECT coalesce(sum(count), 0) FROM sluice.events WHERE event = 'borrow_expired'}); }

subtest 'the views show who borrows what from whom' => sub {
  lend('mark');
  my ($own, $borrower) = borrow('SELECT 1');
  is($borrower->finish->{error}, undef, 'it runs');
  is_deeply($server->rows(q{SELECT class, in_use, borrowed, lent, borrowed_from FROM sluice.classes WHERE state = 'active' ORDER BY class}),
    [ [ 'batch', 2, 1, 0, '{interactive=1}' ], [ 'interactive', 0, 0, 1, '{}' ] ], 'classes: permits in use, borrowed, lent, from whom');
  is_deeply($server->rows(q{SELECT source, borrowed_from FROM sluice.tickets ORDER BY source}),
    [ [ 'borrowed', 'interactive' ], [ 'own class', undef ] ], 'tickets: each with its source');
  is($server->value(q{SELECT sum(value) FROM sluice.metrics WHERE name IN ('sluice_class_borrowed', 'sluice_class_lent')}), 2, 'metrics: the same');
  my ($holder, $waiter) = queue_in_lender();
  ok($server->wait_waiters(1, 'interactive'), 'the lender has one permit less');
  is($server->value(q{SELECT blocked_by FROM sluice.tickets WHERE state = 'QUEUED'}), 'executionClasses.interactive.permits', 'and its waiter waits for its permits');
  $own->run('COMMIT');
  is($waiter->finish->{error}, undef, 'the first permit that comes back to the borrower goes to the lender');
  is($server->value(q{SELECT borrowed FROM sluice.classes WHERE class = 'batch'}), 0, 'with that the debt is paid');
  is($server->value(q{SELECT source FROM sluice.tickets WHERE class = 'batch'}), 'own class', 'the other one goes on, on the permit that has become its own');
  $_->run('COMMIT') for $borrower, $holder, $waiter;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'onExpiry: cancel ends a statement only while the lender queues' => sub {
  my ($own, $borrower, $holder, $waiter, $error, $before, $told);
  # A machine that gives the backend no turn for a second lets it be terminated instead; then it is tried again.
  for my $attempt (1 .. 20) {
    lend('cancel');
    ($before, $told) = (cancels(), expiries());
    ($own, $borrower) = borrow('SELECT pg_sleep(600)');
    ttl_passes_in_peace($borrower, $before);
    ($holder, $waiter) = queue_in_lender();
    $error = $borrower->finish->{error};
    last if $error->{code} ne '57P01';
    $server->close_all;
  }
  is($error->{code}, '57014', 'the lender queues: 57014');
  like($error->{context} // '', qr/pg_sluice: .*borrowed permit.*borrow\.ttlMs/, 'CONTEXT says why') or diag(explain($error));
  $borrower->run('ROLLBACK');
  is($waiter->finish->{error}, undef, 'the lender has its permit');
  is(cancels(), $before + 1, 'it is counted');
  is(expiries(), $told + 1, 'and told as an event');
  is($server->value(q{SELECT rule FROM sluice.events WHERE event = 'borrow_expired' ORDER BY last_at DESC LIMIT 1}), 'executionClasses.batch.borrow.ttlMs', 'with its rule');
  is($borrower->is_open, 1, 'the session lives on');
  $_->run('COMMIT') for $own, $holder, $waiter;
  is($borrower->code('SELECT 1'), '', 'and works');
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'onExpiry: cancel ends a session that is idle in its transaction' => sub {
  lend('cancel');
  my ($own, $borrower) = borrow('SELECT 1');
  is($borrower->finish->{error}, undef, 'it runs, and then idles');
  my ($holder, $waiter) = queue_in_lender();
  is($waiter->finish->{error}, undef, 'the lender has its permit back');
  ok(wait_until(sub { ($borrower->code('SELECT 1') // '57P01') ne '' || !$borrower->is_open }, 'the session to end'), 'the idle one is gone');
  is_deeply($server->rows(q{SELECT DISTINCT rule FROM sluice.events WHERE event = 'time_limit_terminate'}),
    [ [ 'executionClasses.batch.borrow.ttlMs' ] ], 'and the event names the ttl of its permit, not a time limit');
  $_->run('COMMIT') for $own, $holder, $waiter;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'onExpiry: mark tells of it once, and ends nothing' => sub {
  lend('mark');
  my ($before, $told) = (cancels(), expiries());
  my ($own, $borrower) = borrow('SELECT 1');
  is($borrower->finish->{error}, undef, 'it runs');
  my ($holder, $waiter) = queue_in_lender();
  ok(wait_until(sub { expiries() > $told }, 'the event'), 'an event says that the lender waits for it');
  sleep 0.5;
  is(expiries(), $told + 1, 'once');
  is(cancels(), $before, 'and nothing was cancelled');
  is($borrower->code('SELECT 1'), '', 'the transaction goes on');
  $borrower->run('COMMIT');
  is($waiter->finish->{error}, undef, 'its end gives the permit back');
  $_->run('COMMIT') for $own, $holder, $waiter;
  $server->ledger_is_zero('the ledger is zero');
};

subtest 'a commit that waits for a synchronous standby is never cancelled for its permit' => sub {
  lend('cancel');
  $server->set_and_hup(synchronous_standby_names => "'nobody'");
  my $before = cancels();
  my $own = hold($server->connect('batch'));
  my $borrower = $server->connect('batch');
  ok(wait_until(sub { $borrower->value('SHOW synchronous_standby_names') eq 'nobody' }, 'the setting'), 'a standby that never answers');
  $borrower->run('BEGIN');
  $borrower->run('INSERT INTO written VALUES (1)');
  ok($server->wait_holders(2, 'batch'), 'the second batch transaction is lent a permit');
  my $pid = $borrower->pid;
  $borrower->send_query('COMMIT');
  ok(wait_until(sub { ($server->value("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") // '') eq 'SyncRep' }, 'the commit to wait'), 'its commit waits');
  my ($holder, $waiter) = queue_in_lender();
  ok($server->wait_waiters(1, 'interactive'), 'the lender queues');
  ok(!$borrower->readable(2), 'for longer than ttl and grace together the commit is not acknowledged');
  is(cancels(), $before, 'and was not cancelled');
  $server->set_and_hup(synchronous_standby_names => "''");
  my $done = $borrower->finish;
  is($done->{error}, undef, 'with the standby given up it commits');
  is_deeply($done->{notices} // [], [], 'without a warning of a cancelled wait');
  is($waiter->finish->{error}, undef, 'and the lender has its permit');
  $_->run('COMMIT') for $own, $holder, $waiter;
  $server->ledger_is_zero('the ledger is zero');
};

$server->server_log_is_clean('borrowed permits: nothing crashed');
done_testing();
