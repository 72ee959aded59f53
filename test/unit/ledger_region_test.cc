#include "ledger/region.h"

#include <gtest/gtest.h>

#include "ledger/class_use.h"
#include "ledger_fixture.h"

namespace sluice::ledger {
namespace {

constexpr Sizes kSizes = {8, 2, 4, 2, 8, 8, 8};

TEST(LedgerRegion, AFreshRegionIsUnlimitedAndBalanced) {
  test::TestLedger t(kSizes);
  EXPECT_EQ(t.ledger.header->policy.generation, 0U);
  EXPECT_EQ(t.ledger.header->mode, static_cast<std::uint32_t>(Mode::shadow));
  EXPECT_EQ(t.klass(0).free, static_cast<std::int32_t>(policy::kNoLimit));
  EXPECT_STREQ(t.ledger.classes[0].name, "default");
  EXPECT_EQ(t.audit_report(), "");
}

TEST(LedgerRegion, WithNothingPublishedEverythingIsAdmittedAndCounted) {
  test::TestLedger t(kSizes);
  const std::uint32_t tenant = t.tenant("anyone");
  for (std::uint32_t i = 0; i < 10; i++) EXPECT_EQ(t.begin(i, t.request(tenant, 0, false)).status, Status::ok);
  EXPECT_EQ(t.row(tenant).in_use, 10U);
  EXPECT_EQ(peak_in_use(t.ledger.classes[0]), 10U);
  for (std::uint32_t i = 0; i < 10; i++) EXPECT_EQ(t.finish(i), Status::ok);
  EXPECT_EQ(t.row(tenant).in_use, 0U);
  EXPECT_EQ(t.audit_report(), "");
}

TEST(LedgerRegion, SizesOutOfBoundsAreRefused) {
  for (Sizes sizes : {Sizes{0, 0, 4, 2, 8, 8, 8}, Sizes{8, 0, 1, 2, 8, 8, 8}, Sizes{8, 0, 4, 0, 8, 8, 8},
                      Sizes{8, 0, 4, 17, 8, 8, 8}, Sizes{8, 0, 100001, 2, 8, 8, 8}, Sizes{300000, 0, 4, 2, 8, 8, 8}}) {
    EXPECT_EQ(region_size(sizes), 0U);
  }
}

TEST(LedgerRegion, AttachFindsWhatFormatMadeAndRefusesAnotherBuild) {
  test::TestLedger t(kSizes);
  Ledger other;
  EXPECT_EQ(attach(t.ledger.header, test::kStamp, other), Status::ok);
  EXPECT_EQ(other.tickets, t.ledger.tickets);
  EXPECT_EQ(other.refusals, t.ledger.refusals);
  EXPECT_EQ(attach(t.ledger.header, "another build", other), Status::layout_mismatch);
  t.ledger.header->layout_version++;
  EXPECT_EQ(attach(t.ledger.header, test::kStamp, other), Status::layout_mismatch);
  t.ledger.header->layout_version--;
  t.ledger.header->sizes.tenants++;
  EXPECT_EQ(attach(t.ledger.header, test::kStamp, other), Status::layout_mismatch);
  t.ledger.header->sizes.tenants--;
  t.ledger.header->magic = 0;
  EXPECT_EQ(attach(t.ledger.header, test::kStamp, other), Status::layout_mismatch);
}

TEST(LedgerRegion, AShortOrUnalignedBlockIsRefused) {
  alignas(64) static char memory[1024];
  Ledger ledger;
  EXPECT_EQ(format(memory, sizeof(memory), kSizes, "x", Uuid{}, 1, 0, ledger), Status::layout_mismatch);
  EXPECT_EQ(format(memory + 8, region_size(kSizes), kSizes, "x", Uuid{}, 1, 0, ledger), Status::layout_mismatch);
}

}  // namespace
}  // namespace sluice::ledger
