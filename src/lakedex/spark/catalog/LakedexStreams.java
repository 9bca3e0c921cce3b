// Writes a stream's batches on the driver. Spark's own node for a batch would ask the table for a class of ours on
// executors; this strategy, asked before Spark's, hands the batch's rows to Python. Compiled on the driver by Janino,
// which has no generics. Versions of Spark differ in the type of a Seq (SEQ) and of a new node's children (INDEXED).

import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.function.BiFunction;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;
import org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2;
import org.apache.spark.sql.execution.streaming.sources.MicroBatchWrite;

public final class LakedexStreams {

  // Puts the strategy into a session once, before all others. The session of a stream is a copy that has it, too.
  public void register(ExperimentalMethods methods) {
    scala.collection.Seq given = methods.extraStrategies();
    scala.collection.immutable.List list = list();
    for (int i = given.size() - 1; i >= 0; i--) {
      if (given.apply(i) instanceof Batches) return;
      list = list.$colon$colon(given.apply(i));
    }
    methods.extraStrategies_$eq(list.$colon$colon(new Batches()));
  }

  static scala.collection.immutable.List list() { return scala.collection.immutable.List$.MODULE$.empty(); }

  public static final class Batches extends SparkStrategy {
    public SEQ apply(LogicalPlan plan) {
      if (!(plan instanceof WriteToDataSourceV2)) return list();
      Object write = ((WriteToDataSourceV2) plan).batchWrite();
      if (!(write instanceof MicroBatchWrite)) return list();
      Object ours = ((MicroBatchWrite) write).writeSupport();
      if (!(ours instanceof BiFunction) || !Proxy.isProxyClass(ours.getClass())) return list();
      if (!Proxy.getInvocationHandler(ours).getClass().getName().startsWith("LakedexBridge")) return list();
      SparkPlan rows = planLater(((WriteToDataSourceV2) plan).query());
      return list().$colon$colon(new BatchExec(rows, (BiFunction) ours, number(write)));
    }

    private static Long number(Object write) {
      try {
        Field field = MicroBatchWrite.class.getDeclaredField("epochId");
        field.setAccessible(true);
        return (Long) field.get(write);
      } catch (Exception failure) {
        throw new IllegalStateException("Spark keeps the number of a stream's batch in another place", failure);
      }
    }
  }

  public static final class BatchExec extends V2CommandExec {
    private final SparkPlan child;
    private final BiFunction python;
    private final Long batch;

    public BatchExec(SparkPlan child, BiFunction python, Long batch) {
      this.child = child;
      this.python = python;
      this.batch = batch;
    }

    public SEQ run() {
      try {
        python.apply(child, batch);
      } catch (java.lang.reflect.UndeclaredThrowableException failure) {
        // Spark's own exceptions are checked ones.
        org.apache.spark.unsafe.Platform.throwException(failure.getUndeclaredThrowable());
      }
      return list();
    }

    public SparkPlan child() { return child; }
    public SEQ output() { return list(); }
    public SEQ children() { return list().$colon$colon(child); }
    public TreeNode withNewChildrenInternal(INDEXED made) {
      return new BatchExec((SparkPlan) made.apply(0), python, batch);
    }
    public String nodeName() { return "LakedexBatch"; }
    public String simpleString(int fields) { return nodeName() + " " + python; }
    public int productArity() { return 3; }
    public Object productElement(int n) { return n == 0 ? child : n == 1 ? (Object) python : batch; }
    public boolean canEqual(Object other) { return other instanceof BatchExec; }
    public boolean equals(Object other) { return this == other; }
    public int hashCode() { return System.identityHashCode(this); }
  }
}
