// Runs MERGE, UPDATE and DELETE on the driver. Spark rewrites each to a write over a query of changed rows, and its own
// node would hand these to a class of ours on executors. This strategy, asked before Spark's, hands the query to Python.
// Compiled on the driver by Janino, which has no generics. Spark's versions differ in the type of a Seq (SEQ) and of the
// children of a new node (INDEXED), so Python fills those in.

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.util.WriteDeltaProjections;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.V2CommandExec;

public final class LakedexRowLevel {

  // Puts the strategy into a session once, before all others.
  public void register(ExperimentalMethods methods) {
    scala.collection.Seq given = methods.extraStrategies();
    scala.collection.immutable.List list = list();
    for (int i = given.size() - 1; i >= 0; i--) {
      if (given.apply(i) instanceof Changes) return;
      list = list.$colon$colon(given.apply(i));
    }
    methods.extraStrategies_$eq(list.$colon$colon(new Changes()));
  }

  static scala.collection.immutable.List list() { return scala.collection.immutable.List$.MODULE$.empty(); }

  static scala.Option none() { return scala.Option$.MODULE$.empty(); }

  public static final class Changes extends SparkStrategy {
    public SEQ apply(LogicalPlan plan) {
      if (plan instanceof WriteDelta) {
        WriteDelta delta = (WriteDelta) plan;
        LogicalPlan table = (LogicalPlan) delta.originalTable();
        return changes(plan, write(plan), delta.query(), written(delta), table, delta.projections());
      }
      // A MERGE that only inserts. Before Spark 4.3 it is an append whose query joins the very relation that it writes,
      // which no INSERT's does.
      boolean merge = plan.getClass().getSimpleName().equals("InsertOnlyMerge");
      if (!merge && !(plan instanceof AppendData)) return list();
      LogicalPlan query = (LogicalPlan) plan.children().apply(0);
      LogicalPlan table = written(plan);
      if (merge || reads(query, table)) return changes(plan, write(plan), query, table, table, null);
      return list();
    }

    private SEQ changes(LogicalPlan plan, Object write, LogicalPlan query, LogicalPlan written, LogicalPlan table,
        WriteDeltaProjections projections) {
      if (!(write instanceof BiFunction) || !ours(write)) return list();
      BiFunction python = (BiFunction) write;
      if (plan.origin().sqlText().isDefined()) python.apply("check", plan.origin().sqlText().get());
      Sides sides = Sides.find(query, query, written);
      String how = (String) python.apply("explain", sides);
      return list().$colon$colon(new ChangesExec(planLater(query), how, sides, python, table, projections));
    }
  }

  // The first member of the case class: its accessor has two return types, which Janino does not tell apart.
  static LogicalPlan written(LogicalPlan write) { return (LogicalPlan) write.productElement(0); }

  static Object write(LogicalPlan write) {
    for (int i = 0; i < write.productArity(); i++) {
      Object part = write.productElement(i);
      if (part instanceof scala.Some && ((scala.Some) part).get() instanceof BiFunction) return ((scala.Some) part).get();
    }
    return null;
  }

  static boolean ours(Object proxy) {
    return Proxy.isProxyClass(proxy.getClass())
        && Proxy.getInvocationHandler(proxy).getClass().getName().startsWith("LakedexBridge");
  }

  static boolean reads(LogicalPlan plan, LogicalPlan written) {
    if (isScan(plan, written)) return true;
    for (int i = 0; i < plan.children().size(); i++) {
      if (reads((LogicalPlan) plan.children().apply(i), written)) return true;
    }
    return false;
  }

  // Whether a scan reads the relation that is written: another one of the table has other ids of columns.
  static boolean isScan(LogicalPlan plan, LogicalPlan written) {
    if (!(plan instanceof DataSourceV2ScanRelation)) return false;
    for (int i = 0; i < plan.output().size(); i++) {
      if (written.outputSet().contains((NamedExpression) plan.output().apply(i))) return true;
    }
    return false;
  }

  // ----------------------------------------------------------------------------------------------------- the join

  // The join of the written table with the rows that decide on its own: a source, or a subquery. Only rows of the table
  // that have a match among those matter, so that once they are known, files can be left out.
  public static final class Sides {
    private final LogicalPlan query;
    private final Join join;
    private final boolean tableLeft;
    private final DataSourceV2ScanRelation relation;
    private final List ours = new ArrayList();
    private final List theirs = new ArrayList();

    private Sides(LogicalPlan query, Join join, boolean tableLeft, DataSourceV2ScanRelation relation) {
      this.query = query;
      this.join = join;
      this.tableLeft = tableLeft;
      this.relation = relation;
      scala.Option found = ExtractEquiJoinKeys.unapply(join);
      if (found.isEmpty()) return;
      scala.collection.Seq left = (scala.collection.Seq) ((scala.Tuple8) found.get())._2();
      scala.collection.Seq right = (scala.collection.Seq) ((scala.Tuple8) found.get())._3();
      for (int i = 0; i < left.size(); i++) {
        Expression own = (Expression) (tableLeft ? left : right).apply(i);
        Expression other = (Expression) (tableLeft ? right : left).apply(i);
        // Of a column without a cast the values are compared as they are stored.
        if (!(own instanceof Attribute) || !relation.outputSet().contains((Attribute) own)) continue;
        if (!other.deterministic()) continue;
        ours.add(own);
        theirs.add(other);
      }
    }

    static Sides find(LogicalPlan query, LogicalPlan plan, LogicalPlan written) {
      if (plan instanceof Join) {
        Join join = (Join) plan;
        String type = join.joinType().toString();
        boolean left = type.equals("Inner") || type.equals("RightOuter") || type.equals("LeftSemi");
        DataSourceV2ScanRelation scan = scan(left ? join.left() : join.right(), written);
        if (scan != null && (left || type.equals("LeftAnti"))) {
          Sides sides = new Sides(query, join, left, scan);
          return sides.ours.isEmpty() ? null : sides;
        }
      }
      for (int i = 0; i < plan.children().size(); i++) {
        Sides found = find(query, (LogicalPlan) plan.children().apply(i), written);
        if (found != null) return found;
      }
      return null;
    }

    private static DataSourceV2ScanRelation scan(LogicalPlan plan, LogicalPlan written) {
      while (plan instanceof Project || plan instanceof Filter) plan = (LogicalPlan) plan.children().apply(0);
      if (!isScan(plan, written)) return null;
      Object scan = ((DataSourceV2ScanRelation) plan).scan();
      return scan instanceof Function && ours(scan) ? (DataSourceV2ScanRelation) plan : null;
    }

    // Columns of the table that equal an expression of the other side.
    public String columns() {
      StringBuilder names = new StringBuilder();
      for (int i = 0; i < ours.size(); i++) names.append(i == 0 ? "" : "\0").append(((Attribute) ours.get(i)).name());
      return names.toString();
    }

    public LogicalPlan others() { return tableLeft ? join.right() : join.left(); }

    public Object scan() { return relation.scan(); }

    // The values that the columns have to equal, of rows of the other side that are kept.
    public LogicalPlan values(LogicalPlan kept) {
      scala.collection.immutable.List wanted = list();
      for (int i = theirs.size() - 1; i >= 0; i--) wanted = wanted.$colon$colon(alias((Expression) theirs.get(i), "k" + i));
      return new Project(wanted, others(kept));
    }

    private static Alias alias(Expression value, String name) {
      return new Alias(value, name, NamedExpression$.MODULE$.newExprId(), list(), none(), list());
    }

    // The kept rows under the names that the query knows.
    private LogicalPlan others(LogicalPlan kept) {
      scala.collection.Seq wanted = others().output();
      scala.collection.immutable.List columns = list();
      for (int i = wanted.size() - 1; i >= 0; i--) {
        Attribute have = (Attribute) kept.output().apply(i);
        Attribute want = (Attribute) wanted.apply(i);
        Object column = have.exprId().equals(want.exprId()) ? (Object) have
            : new Alias(have, want.name(), want.exprId(), list(), none(), list());
        columns = columns.$colon$colon(column);
      }
      return new Project(columns, kept);
    }

    // The query over the kept rows and a narrower scan. Few rows are brought to the table's, not the reverse: first those
    // of the table without a match go. "bounded" says that a kept row has about one match.
    public LogicalPlan query(LogicalPlan kept, Object scan, boolean few, boolean bounded) {
      LogicalPlan table = scanning(tableLeft ? join.left() : join.right(), scan);
      LogicalPlan rows = others(kept);
      String type = join.joinType().toString();
      JoinHint hint = join.hint();
      if (few && (type.equals("Inner") || type.equals("LeftSemi"))) {
        hint = new JoinHint(none(), broadcast());
      } else if (few) {
        table = matched(table, kept);
        // In one task, so that Spark sees all matches of a row together when it counts them.
        if (bounded && tableLeft) rows = new Repartition(1, false, rows);
        if (bounded) hint = tableLeft ? new JoinHint(broadcast(), none()) : new JoinHint(none(), broadcast());
      }
      LogicalPlan left = tableLeft ? table : rows;
      LogicalPlan made = new Join(left, tableLeft ? rows : table, join.joinType(), join.condition(), hint);
      return replaced(query, join, made);
    }

    private LogicalPlan matched(LogicalPlan table, LogicalPlan kept) {
      LogicalPlan values = values(kept);
      Expression condition = null;
      for (int i = 0; i < ours.size(); i++) {
        Expression equal = new EqualTo((Expression) ours.get(i), (Expression) values.output().apply(i));
        condition = condition == null ? equal : new And(condition, equal);
      }
      return new Join(table, values, org.apache.spark.sql.catalyst.plans.LeftSemi$.MODULE$,
          scala.Option$.MODULE$.apply(condition), new JoinHint(none(), broadcast()));
    }

    private static scala.Option broadcast() {
      return scala.Option$.MODULE$.apply(new HintInfo(scala.Option$.MODULE$.apply(BROADCAST$.MODULE$)));
    }

    private LogicalPlan scanning(LogicalPlan plan, Object scan) {
      Object[] parts = new Object[relation.productArity()];
      for (int i = 0; i < parts.length; i++) {
        parts[i] = relation.productElement(i);
        if (parts[i] == relation.scan()) parts[i] = scan;
      }
      return replaced(plan, relation, (LogicalPlan) relation.makeCopy(parts));
    }

    private static LogicalPlan replaced(LogicalPlan plan, LogicalPlan old, LogicalPlan made) {
      if (plan == old) return made;
      scala.collection.immutable.List children = list();
      boolean same = true;
      for (int i = plan.children().size() - 1; i >= 0; i--) {
        LogicalPlan child = (LogicalPlan) plan.children().apply(i);
        LogicalPlan other = replaced(child, old, made);
        same = same && child == other;
        children = children.$colon$colon(other);
      }
      return same ? plan : (LogicalPlan) plan.withNewChildren(children);
    }
  }

  // ----------------------------------------------------------------------------------------------------- the node

  // V2CommandExec: adaptive execution plans the child on its own, and the statement runs once, when it is asked.
  public static final class ChangesExec extends V2CommandExec {
    private final SparkPlan child;
    private final String how;
    private final Sides sides;
    private final BiFunction python;
    private final LogicalPlan table;
    private final WriteDeltaProjections projections;

    public ChangesExec(SparkPlan child, String how, Sides sides, BiFunction python, LogicalPlan table,
        WriteDeltaProjections projections) {
      this.child = child;
      this.how = how;
      this.sides = sides;
      this.python = python;
      this.table = table;
      this.projections = projections;
    }

    public SparkPlan child() { return child; }
    public Sides sides() { return sides; }
    public LogicalPlan table() { return table; }
    public WriteDeltaProjections projections() { return projections; }

    public SEQ run() {
      try {
        python.apply("run", this);
      } catch (Throwable failure) {
        org.apache.spark.unsafe.Platform.throwException(cause(failure));
      }
      return list();
    }

    // The error of the task that failed, where Spark has wrapped it into the text of a job's.
    private static Throwable cause(Throwable failure) {
      if (failure instanceof java.lang.reflect.UndeclaredThrowableException) {  // SparkException is a checked one.
        failure = ((java.lang.reflect.UndeclaredThrowableException) failure).getUndeclaredThrowable();
      }
      for (Throwable found = failure; found != null; found = found.getCause()) {
        boolean named = found instanceof org.apache.spark.SparkThrowable
            && ((org.apache.spark.SparkThrowable) found).getErrorClass() != null;
        if (named && !String.valueOf(found.getMessage()).contains("Job aborted due to stage failure")) return found;
      }
      return failure;
    }

    public SEQ output() { return list(); }
    public SEQ children() { return list().$colon$colon(child); }
    public TreeNode withNewChildrenInternal(INDEXED made) {
      return new ChangesExec((SparkPlan) made.apply(0), how, sides, python, table, projections);
    }
    public String nodeName() { return "LakedexChanges"; }
    public String simpleString(int fields) { return nodeName() + " " + how; }
    public int productArity() { return 6; }
    public Object productElement(int n) {
      return n == 0 ? child : n == 1 ? how : n == 2 ? sides : n == 3 ? python : n == 4 ? (Object) table : projections;
    }
    public boolean canEqual(Object other) { return other instanceof ChangesExec; }
    public boolean equals(Object other) { return this == other; }
    public int hashCode() { return System.identityHashCode(this); }
  }
}
