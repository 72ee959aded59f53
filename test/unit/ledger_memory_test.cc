// The memory formula that docs/settings.md states for operators is the one region_size() computes.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "ledger/region.h"
#include "ledger/tenants.h"

namespace sluice::ledger {
namespace {

std::string settings_page() {
  std::ifstream file(SLUICE_SOURCE_DIR "/docs/settings.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string term(std::size_t bytes, const std::string& factor) { return std::to_string(bytes) + " × " + factor; }

TEST(LedgerMemory, DocumentedRecordSizesAreTheRealOnes) {
  const std::string page = settings_page();
  for (const std::string& stated :
       {std::to_string(sizeof(Header)) + " ", term(sizeof(ClassState), "max_classes"),
        term(sizeof(Row), "(max_tenants + 1) × max_classes"), term(sizeof(Tenant), "(max_tenants + 1)"),
        "(" + std::to_string(sizeof(Session)) + " + " + std::to_string(sizeof(Ticket)) + ") × backends",
        term(sizeof(Receipt), "max_receipts"), term(sizeof(Event), "max_events"),
        term(sizeof(RefusalCell), "max_refusal_cells")}) {
    EXPECT_NE(page.find(stated), std::string::npos) << "docs/settings.md does not say: " << stated;
  }
}

// Tables are rounded up to cache lines, so the sum is exact up to one line a table.
TEST(LedgerMemory, DocumentedFormulaIsRegionSize) {
  for (const Sizes& sizes : {Sizes{126, 0, 1001, 8, 1024, 512, 2048}, Sizes{526, 0, 10001, 8, 1024, 512, 2048},
                             Sizes{23, 0, 17, 1, 16, 16, 64}}) {
    const std::size_t buckets = tenant_bucket_count(sizes) + id_bucket_count(sizes) + receipt_bucket_count(sizes);
    const std::size_t sum = sizeof(Header) + sizeof(ClassState) * sizes.classes +
                            sizeof(Row) * sizes.tenants * sizes.classes + sizeof(Tenant) * sizes.tenants + 4 * buckets +
                            8 * sizes.tenants * sizes.classes + (sizeof(Session) + sizeof(Ticket)) * sizes.sessions +
                            sizeof(Receipt) * sizes.receipts + sizeof(Event) * sizes.events +
                            sizeof(RefusalCell) * sizes.refusal_cells;
    EXPECT_GE(region_size(sizes), sum);
    EXPECT_LE(region_size(sizes), sum + 64 * 14);
  }
}

}  // namespace
}  // namespace sluice::ledger
