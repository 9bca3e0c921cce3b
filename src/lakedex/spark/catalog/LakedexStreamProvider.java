// The source of readStream.table: Spark makes it by its name. Python answers for the stream.
package org.apache.spark.sql.sources;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.execution.streaming.Source;

public final class LakedexStreamProvider implements StreamSourceProvider {
  private static final Map openers = new ConcurrentHashMap();

  public void add(String number, BiFunction opener) { openers.put(number, opener); }

  public scala.Tuple2 sourceSchema(SQLContext context, scala.Option schema, String name,
      scala.collection.immutable.Map parameters) {
    return new scala.Tuple2("lakedex", schema.get());
  }

  public Source createSource(SQLContext context, String metadata, scala.Option schema, String name,
      scala.collection.immutable.Map parameters) {
    Map options = new HashMap();
    for (scala.collection.Iterator each = parameters.iterator(); each.hasNext();) {
      scala.Tuple2 option = (scala.Tuple2) each.next();
      options.put(option._1(), option._2());
    }
    BiFunction opener = (BiFunction) openers.get(options.remove("lakedex"));
    if (opener == null) throw new IllegalStateException("the Python process of this stream's catalog is gone");
    return (Source) opener.apply(context.sparkSession(), options);
  }
}
