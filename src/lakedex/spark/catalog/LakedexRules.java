// The optimizer rule that lets a table answer an aggregate, and the plan nodes of the answer: a Catalyst class cannot be
// a py4j proxy. Compiled on the driver by Janino, which has no generics. Versions of Spark and Scala differ in the type
// of a Seq (SEQ) and in the arguments of two constructors (RELATION_REST, SCAN_…), so Python fills those in.

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.unsafe.types.UTF8String;

public final class LakedexRules {

  // Adds the rule to a session once; its other rules stay.
  public void register(ExperimentalMethods methods) {
    methods.extraOptimizations_$eq(appended(methods.extraOptimizations(), new AnswerRule()));
    methods.extraStrategies_$eq(appended(methods.extraStrategies(), new AnswerStrategy()));
  }

  static scala.collection.immutable.List appended(scala.collection.Seq given, Object last) {
    scala.collection.immutable.List list = list();
    boolean known = false;
    for (int i = 0; i < given.size(); i++) known = known || given.apply(i).getClass() == last.getClass();
    if (!known) list = list.$colon$colon(last);
    for (int i = given.size() - 1; i >= 0; i--) list = list.$colon$colon(given.apply(i));
    return list;
  }

  static scala.collection.immutable.List list() { return scala.collection.immutable.List$.MODULE$.empty(); }

  static scala.collection.immutable.List list(List values) {
    scala.collection.immutable.List list = list();
    for (int i = values.size() - 1; i >= 0; i--) list = list.$colon$colon(values.get(i));
    return list;
  }

  // ------------------------------------------------------------------------------------------------- the rule

  public static final class AnswerRule extends Rule {
    public TreeNode apply(TreeNode plan) {
      return maybe(plan) ? plan.transformDown(new Answers()).transformUp(new Above()) : plan;
    }

    private static boolean maybe(TreeNode plan) {
      if (plan instanceof Aggregate && scanOf(((Aggregate) plan).child()) != null) return true;
      scala.collection.Seq children = plan.children();
      for (int i = 0; i < children.size(); i++) if (maybe((TreeNode) children.apply(i))) return true;
      return false;
    }
  }

  public static final class Answers extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) { return node instanceof Aggregate; }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!(node instanceof Aggregate)) return otherwise.apply(node);
      try {
        LogicalPlan found = new AggregateQuery((Aggregate) node).answered();
        return found == null ? node : found;
      } catch (Exception failure) {
        return left(node, failure);
      } catch (LinkageError failure) {
        return left(node, failure);
      }
    }

    static Object left(Object node, Throwable failure) {
      org.slf4j.LoggerFactory.getLogger("lakedex").debug("an aggregate is left to Spark", failure);
      return node;
    }
  }

  // HAVING, and what else Spark computes of rows in a plan, so that no job runs for it.
  public static final class Above extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) { return true; }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      LogicalPlan plan = (LogicalPlan) node;
      if (plan.children().size() != 1) return node;
      LogicalPlan child = (LogicalPlan) plan.children().apply(0);
      if (!(child instanceof LocalRelation) || child.getTagValue(SOURCE).isEmpty()) return node;
      try {
        LogicalPlan found = converted(plan);
        if (!(found instanceof LocalRelation)) return node;
        LocalRelation answer = relation(plan.output(), ((LocalRelation) found).data());
        answer.setTagValue(SOURCE, child.getTagValue(SOURCE).get());
        return answer;
      } catch (Exception failure) {
        return Answers.left(node, failure);
      }
    }
  }

  static LogicalPlan converted(LogicalPlan plan) {
    return org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation$.MODULE$.apply(plan);
  }

  // The scan of a table of ours under projections and filters, or null.
  static DataSourceV2ScanRelation scanOf(LogicalPlan plan) {
    while (plan instanceof Project || plan instanceof Filter) {
      plan = plan instanceof Project ? ((Project) plan).child() : ((Filter) plan).child();
    }
    if (!(plan instanceof DataSourceV2ScanRelation)) return null;
    Object table = ((DataSourceV2ScanRelation) plan).relation().table();
    boolean ours = table instanceof Function && Proxy.isProxyClass(table.getClass())
        && Proxy.getInvocationHandler(table).getClass().getName().startsWith("LakedexBridge");
    return ours ? (DataSourceV2ScanRelation) plan : null;
  }

  // An aggregate over a table, if nothing else is in it. Python reads conditions() and json().
  public static final class AggregateQuery {
    private final Aggregate aggregate;
    private final DataSourceV2ScanRelation scan;
    private final Map columns = new HashMap();
    private final List conditions = new ArrayList();
    private final List groups = new ArrayList();
    private final List groupAttributes = new ArrayList();
    private final List calls = new ArrayList();
    private final List callAttributes = new ArrayList();
    private final Map described = new LinkedHashMap();
    private boolean understood = true;

    AggregateQuery(Aggregate aggregate) {
      this.aggregate = aggregate;
      this.scan = scanOf(aggregate.child());
    }

    public scala.collection.Seq conditions() {
      return org.apache.spark.sql.execution.datasources.DataSourceStrategy$.MODULE$.normalizeExprs(
          list(conditions), scan.output());
    }

    public String json() throws Exception {
      return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(described);
    }

    LogicalPlan answered() throws Exception {
      if (scan == null) return null;
      scala.collection.Seq output = scan.output();
      for (int i = 0; i < output.size(); i++) {
        Attribute column = (Attribute) output.apply(i);
        columns.put(column.exprId(), path(column.name(), null));
      }
      below(aggregate.child());
      group();
      List wanted = wanted();
      if (!understood || groups.isEmpty() && calls.isEmpty()) return null;
      List types = new ArrayList();
      List base = new ArrayList(groupAttributes);
      base.addAll(callAttributes);
      for (int i = 0; i < base.size(); i++) types.add(((Attribute) base.get(i)).dataType().catalogString());
      described.put("group_by", groups);
      described.put("aggregates", calls);
      described.put("types", types);
      Object encoded = ((Function) scan.relation().table()).apply(this);
      if (encoded == null) return null;
      DataInputStream stream = new DataInputStream(new ByteArrayInputStream((byte[]) encoded));
      String text = text(stream);
      LogicalPlan rows = new Project(list(wanted), relation(list(base), rows(stream, base)));
      rows = converted(rows);
      if (!(rows instanceof LocalRelation)) return null;
      LocalRelation answer = relation(aggregate.output(), ((LocalRelation) rows).data());
      answer.setTagValue(SOURCE, text);
      return answer;
    }

    private static List path(String name, List parent) {
      List path = parent == null ? new ArrayList() : new ArrayList(parent);
      path.add(name);
      return path;
    }

    private void below(LogicalPlan plan) {
      if (plan instanceof Filter) {
        Filter filter = (Filter) plan;
        below(filter.child());
        // The text of a condition has names only, so they must be those of the table.
        understood = understood && filter.condition().deterministic()
            && filter.condition().references().subsetOf(scan.outputSet());
        conditions.add(filter.condition());
      } else if (plan instanceof Project) {
        Project project = (Project) plan;
        below(project.child());
        scala.collection.Seq listed = project.projectList();
        for (int i = 0; i < listed.size(); i++) {
          NamedExpression named = (NamedExpression) listed.apply(i);
          if (named instanceof Alias) {
            List path = column(((Alias) named).child());
            if (path != null) columns.put(named.exprId(), path);
          }
        }
      }
    }

    // Path of a column or of a field inside one, or null.
    private List column(Expression expression) {
      if (expression instanceof AttributeReference) {
        return (List) columns.get(((AttributeReference) expression).exprId());
      }
      if (!(expression instanceof GetStructField)) return null;
      GetStructField field = (GetStructField) expression;
      List parent = column(field.child());
      return parent == null ? null : path(field.childSchema().fields()[field.ordinal()].name(), parent);
    }

    private void group() {
      org.apache.spark.sql.catalyst.expressions.NamedExpression$ ids =
          org.apache.spark.sql.catalyst.expressions.NamedExpression$.MODULE$;
      scala.collection.Seq keys = aggregate.groupingExpressions();
      for (int i = 0; i < keys.size(); i++) {
        Expression key = (Expression) keys.apply(i);
        List path = column(key);
        understood = understood && path != null;
        groups.add(path);
        groupAttributes.add(key instanceof AttributeReference ? key : new AttributeReference(
            "key", key.dataType(), true, Metadata.empty(), ids.newExprId(), list()));
      }
    }

    // The output, keys and calls in it replaced by columns of the answer.
    private List wanted() {
      List wanted = new ArrayList();
      scala.collection.Seq listed = aggregate.aggregateExpressions();
      for (int i = 0; i < listed.size(); i++) {
        TreeNode replaced = ((TreeNode) listed.apply(i)).transformDown(new Columns(this));
        understood = understood && ((Expression) replaced).deterministic();
        wanted.add(replaced);
      }
      return wanted;
    }

    Object columnFor(Expression expression) {
      for (int i = 0; i < groups.size(); i++) {
        if (((Expression) aggregate.groupingExpressions().apply(i)).semanticEquals(expression)) {
          return groupAttributes.get(i);
        }
      }
      if (!(expression instanceof AggregateExpression)) return null;
      AggregateExpression call = (AggregateExpression) expression;
      List function = function(call);
      understood = understood && function != null;
      if (function == null) return null;
      int known = calls.indexOf(function);
      if (known < 0) {
        known = calls.size();
        calls.add(function);
        callAttributes.add(call.resultAttribute());
      }
      return callAttributes.get(known);
    }

    // Name of a function and its column, or null.
    private List function(AggregateExpression call) {
      boolean complete = call.mode() == org.apache.spark.sql.catalyst.expressions.aggregate.Complete$.MODULE$;
      if (!complete || call.filter().isDefined()) return null;
      Object function = call.aggregateFunction();
      List found = new ArrayList();
      Expression input;
      if (function instanceof Count) {
        if (((Count) function).children().size() != 1) return null;
        input = (Expression) ((Count) function).children().apply(0);
        found.add(call.isDistinct() ? "count_distinct" : "count");
        if (input instanceof Literal && !call.isDistinct() && ((Literal) input).value() != null) {
          found.set(0, "count_star");
          found.add(null);
          return found;
        }
      } else if (function instanceof Min) {
        input = ((Min) function).child();
        found.add("min");
      } else if (function instanceof Max) {
        input = ((Max) function).child();
        found.add("max");
      } else {
        return null;
      }
      List path = column(input);
      if (path == null) return null;
      found.add(path);
      return found;
    }
  }

  public static final class Columns extends scala.runtime.AbstractPartialFunction {
    private final AggregateQuery query;

    Columns(AggregateQuery query) { this.query = query; }

    public boolean isDefinedAt(Object node) { return true; }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      Object column = query.columnFor((Expression) node);
      return column == null ? otherwise.apply(node) : column;
    }
  }

  // ------------------------------------------------------------------------------------------------- the rows

  static String text(DataInputStream stream) throws Exception {
    byte[] bytes = new byte[stream.readInt()];
    stream.readFully(bytes);
    return new String(bytes, "UTF-8");
  }

  // Per column: whether each value is null, then the values.
  static scala.collection.immutable.List rows(DataInputStream stream, List columns) throws Exception {
    Object[][] rows = new Object[stream.readInt()][columns.size()];
    for (int at = 0; at < columns.size(); at++) {
      DataType type = ((Attribute) columns.get(at)).dataType();
      byte[] nulls = new byte[rows.length];
      stream.readFully(nulls);
      String kind = type.typeName();
      int[] lengths = new int[0];
      if (type instanceof DecimalType || kind.equals("string") || kind.equals("binary")) {
        lengths = new int[rows.length];
        for (int i = 0; i < lengths.length; i++) lengths[i] = stream.readInt();
      }
      for (int i = 0; i < rows.length; i++) {
        Object value = lengths.length > 0 ? bytes(stream, lengths[i], type, kind) : number(stream, kind);
        rows[i][at] = nulls[i] == 0 ? value : null;
      }
    }
    scala.collection.immutable.List list = list();
    for (int i = rows.length - 1; i >= 0; i--) list = list.$colon$colon(new GenericInternalRow(rows[i]));
    return list;
  }

  private static Object bytes(DataInputStream stream, int length, DataType type, String kind) throws Exception {
    byte[] bytes = new byte[length];
    stream.readFully(bytes);
    if (kind.equals("string")) return UTF8String.fromBytes(bytes);
    if (kind.equals("binary")) return bytes;
    DecimalType decimal = (DecimalType) type;
    java.math.BigDecimal value = new java.math.BigDecimal(bytes.length == 0 ? "0" : new String(bytes, "UTF-8"));
    return org.apache.spark.sql.types.Decimal.apply(value, decimal.precision(), decimal.scale());
  }

  private static Object number(DataInputStream stream, String kind) throws Exception {
    if (kind.equals("double")) return Double.valueOf(stream.readDouble());
    if (kind.equals("float")) return Float.valueOf((float) stream.readDouble());
    long value = stream.readLong();
    if (kind.equals("boolean")) return Boolean.valueOf(value != 0L);
    if (kind.equals("byte")) return Byte.valueOf((byte) value);
    if (kind.equals("short")) return Short.valueOf((short) value);
    if (kind.equals("integer") || kind.equals("date")) return Integer.valueOf((int) value);
    return Long.valueOf(value);
  }

  // ------------------------------------------------------------------------------------------------- the nodes

  // Copies of a plan keep it.
  static final TreeNodeTag SOURCE = new TreeNodeTag("lakedex.source");

  static LocalRelation relation(scala.collection.Seq output, scala.collection.Seq rows) {
    return new LocalRelation((SEQ) output, (SEQ) rowsRELATION_REST);
  }

  public static final class AnswerScan extends LocalTableScanExec {
    final String text;

    public AnswerScan(SCAN_PARAMETERS, String text) {
      super(SCAN_ARGUMENTS);
      this.text = text;
    }

    // Tasks get the plan with the closures and generated code of the operators above it, and their class loader does not
    // know this class. Not private: Janino would make it static.
    protected Object writeReplace() { return new LocalTableScanExec(output(), rows()SCAN_REST); }

    public String nodeName() { return "LocalTableScan"; }
    public SEQ otherCopyArgs() { return list().$colon$colon(text); }
    public scala.collection.Iterator stringArgs() {
      return list().$colon$colon(output()).$colon$colon(text).iterator();
    }
  }

  // Spark plans a LocalRelation without a text that says where it comes from.
  public static final class AnswerStrategy extends SparkStrategy {
    public SEQ apply(LogicalPlan plan) {
      if (!(plan instanceof LocalRelation)) return list();
      scala.Option source = plan.getTagValue(SOURCE);
      if (source.isEmpty()) return list();
      LocalRelation answer = (LocalRelation) plan;
      return list().$colon$colon(new AnswerScan(answer.output(), answer.data()SCAN_REST, (String) source.get()));
    }
  }
}
