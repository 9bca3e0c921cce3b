// A scan builder for Spark before 4.1, which hands Catalyst's filters to the class FileScanBuilder only. SEQ stands for the
// type of Scala's Seq. Compiled on the driver by Janino, which has no generics.

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.FileScanBuilder;
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters;
import org.apache.spark.sql.types.StructType;

public final class LakedexScanBuilder {

  public Object make(Object python, SparkSession session, PartitioningAwareFileIndex index, StructType schema) {
    return new Builder(python, session, index, schema);
  }

  public static final class Builder extends FileScanBuilder implements SupportsPushDownLimit, SupportsPushDownTopN {
    private final Object python;

    Builder(Object python, SparkSession session, PartitioningAwareFileIndex index, StructType schema) {
      super(session, index, schema);
      this.python = python;
    }

    private SupportsPushDownCatalystFilters filters() { return (SupportsPushDownCatalystFilters) python; }

    public SEQ pushFilters(SEQ filters) { return filters().pushFilters(filters); }
    public Predicate[] pushedFilters() { return filters().pushedFilters(); }
    public void pruneColumns(StructType columns) { ((SupportsPushDownRequiredColumns) python).pruneColumns(columns); }
    public boolean pushLimit(int limit) { return ((SupportsPushDownLimit) python).pushLimit(limit); }
    public boolean pushTopN(SortOrder[] orders, int limit) {
      return ((SupportsPushDownTopN) python).pushTopN(orders, limit);
    }
    public boolean isPartiallyPushed() { return true; }
    public Scan build() { return ((ScanBuilder) python).build(); }
  }
}
